// The decoder on a GPU. Skipped without one.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <vector>

#include "common/projection/testing/checkpoint_writer.h"
#include "kernels/backend.h"
#include "kernels/testing/small_shapes.h"
#include "verifier/model/testing/golden_checks.h"
#include "verifier/model/testing/stored_tensors.h"

namespace arborist::verifier {
namespace {

// fp32 weights: only the order of sums differs from the goldens' and the CPU's.
constexpr double kF32Tolerance = 1e-4;

// |got - want| / |want| of each position's logits, the nearest first. Infinite where anything is NaN.
std::vector<double> Distances(const std::vector<float>& got, const testing::Golden& golden) {
  std::vector<double> distances;
  for (size_t begin = 0; begin < got.size(); begin += static_cast<size_t>(golden.vocabulary)) {
    double difference = 0, magnitude = 0;
    for (size_t i = begin; i < begin + static_cast<size_t>(golden.vocabulary); ++i) {
      difference += std::pow(static_cast<double>(got[i]) - golden.logits[i], 2);
      magnitude += std::pow(static_cast<double>(golden.logits[i]), 2);
    }
    const double distance = std::sqrt(difference / magnitude);
    distances.push_back(std::isfinite(distance) ? distance : INFINITY);
  }
  std::sort(distances.begin(), distances.end());
  return distances;
}

class ModelCuda : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    auto device = OpenCudaDevice({});
    if (!device.ok()) {
      GTEST_SKIP() << "skipped: " << device.status().message();
    }
    device_ = *std::move(device);
    options_.kernels = &kernels::KernelsFor(DeviceKind::kCuda);
    options_.device = device_.get();
    options_.directory = testing::GoldenDirectory(GetParam());
  }

  void UseWidenedGolden() {
    testing::WriteWidenedGolden(GetParam(), widened_.path());
    options_.directory = widened_.path();
  }

  std::unique_ptr<Device> device_;
  testing::HarnessOptions options_;

 private:
  // Its own, for the sanitizers run this program three times at once.
  arborist::testing::ScratchDirectory widened_;
};

TEST_P(ModelCuda, WithF32WeightsLogitsHiddenStatesAndEveryArgmaxAgree) {
  UseWidenedGolden();
  testing::CheckGolden(GetParam(), options_, kF32Tolerance);
}

TEST_P(ModelCuda, WithF32WeightsChunksAndTreesChangeNoBit) {
  UseWidenedGolden();
  testing::CheckChunks(GetParam(), options_);
  testing::CheckTreeNodes(GetParam(), options_);
}

TEST_P(ModelCuda, WithBf16WeightsAndKvChunksAndTreesChangeNoBit) {
  options_.kv_type = DType::kBF16;
  testing::CheckChunks(GetParam(), options_);
  testing::CheckTreeNodes(GetParam(), options_);
}

// FAST chooses its products by the number of rows: fp32 sums over activations as they are for one row and for
// few rows of a small matrix, else EXACT's tensor cores over activations rounded to bf16. Neither rounds more
// than EXACT does, so EXACT's distance to the golden fp32 logits is the yardstick. Medians are at most two
// draws of the same roundings. The farthest tenth is where a rounding turned the choice of an expert (1 of 40
// positions is off by 0.96 of itself in one model, EXACT or not), which need not happen in both.
TEST_P(ModelCuda, FastNumericsAreAsNearToTheGoldenAsExactOnes) {
  const testing::Golden golden = testing::ReadGolden(GetParam());
  const std::vector<TokenId> tokens(golden.tokens.begin(),
                                    golden.tokens.begin() + kernels::testing::Small(40, 8));
  const auto distances = [&](kernels::Numerics numerics, int chunk) {
    options_.kernels = &kernels::KernelsFor(DeviceKind::kCuda, numerics);
    const auto harness = testing::Harness::Make(options_);
    EXPECT_TRUE(harness.ok()) << harness.status();
    const auto output = (*harness)->Run(tokens, chunk);
    EXPECT_TRUE(output.ok()) << output.status();
    return Distances(output->logits, golden);
  };
  const std::vector<double> exact = distances(kernels::Numerics::kExact, 40);
  const size_t half = exact.size() / 2, most = exact.size() * 9 / 10;
  for (const int chunk : kernels::testing::Thinned({1, 3, 8, 40}, 2)) {
    const std::vector<double> fast = distances(kernels::Numerics::kFast, chunk);
    ASSERT_EQ(fast.size(), exact.size());
    std::printf("chunks of %d: median %.3g (EXACT %.3g), nine in ten within %.3g (%.3g), worst %.3g (%.3g)\n",
                chunk, fast[half], exact[half], fast[most], exact[most], fast.back(), exact.back());
    EXPECT_LE(fast[half], 1.5 * exact[half]) << "chunks of " << chunk;
    EXPECT_LE(fast[most], 2 * exact[most]) << "chunks of " << chunk;
    EXPECT_TRUE(std::isfinite(fast.back())) << "chunks of " << chunk;
  }
}

INSTANTIATE_TEST_SUITE_P(Targets, ModelCuda,
                         ::testing::ValuesIn(kernels::testing::Thinned(testing::kGoldenTargets, 2)),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace arborist::verifier
