// The golden data on the GPU: two rounds of five drafters, computed by another program in fp32.

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "common/device/device.h"
#include "drafter/model/testing/golden_drafter.h"
#include "kernels/kernel_set.h"

namespace arborist::drafter {
namespace {

using testing::GoldenDrafter;
using testing::GoldenRun;
using testing::RelativeError;

// fp32 weights run in fp32 throughout: as the CPU's tolerance.
constexpr double kFp32Tolerance = 1e-4;
// bf16 weights run on tensor cores, which take activations rounded to bf16: 2^-9 of a value at most, a few
// times a layer, over two layers. The smallest trap of dflash_traps_test is at 1e-3, so fp32 is what proves
// the reading.
constexpr double kBf16Tolerance = 3e-2;

// The same matrices as fp32.
struct Widened {
  DFlashWeights weights;
  std::vector<std::vector<float>> memory;

  explicit Widened(const DFlashWeights& stored) : weights(stored) {
    for (DFlashLayerWeights& layer : weights.layers) {
      for (WeightView* matrix :
           {&layer.query, &layer.key, &layer.value, &layer.output, &layer.gate, &layer.up, &layer.down}) {
        Widen(*matrix);
      }
    }
    Widen(weights.embedding);
    Widen(weights.head);
  }
  void Widen(WeightView& matrix) {
    std::vector<float>& values = memory.emplace_back();
    for (int64_t i = 0; i < matrix.rows * matrix.columns; ++i) {
      values.push_back(ToFloat(static_cast<const BFloat16*>(matrix.data)[i]));
    }
    matrix.data = values.data();
    matrix.dtype = DType::kF32;
  }
};

class DFlashCudaTest : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    auto device = OpenCudaDevice({});
    if (!device.ok()) {
      GTEST_SKIP() << "skipped: " << device.status().message();
    }
    device_ = *std::move(device);
  }

  void ExpectGolden(const DFlashWeights& weights, double tolerance) {
    const GoldenRun run =
        RunRounds(golden_, golden_.settings, weights, kernels::CudaKernels(), {.device = device_.get()});
    EXPECT_LE(RelativeError(run.layer_hidden, golden_.Read("layer_hidden")), tolerance);
    EXPECT_LE(RelativeError(run.block_hidden, golden_.Read("block_hidden")), tolerance);
    EXPECT_LE(RelativeError(run.log_probs, golden_.Read("log_probs")), tolerance);
  }

  GoldenDrafter golden_{GetParam()};
  std::unique_ptr<Device> device_;
};

TEST_P(DFlashCudaTest, EveryLayerOfBothRoundsAgreesInFp32) {
  ExpectGolden(Widened(golden_.weights).weights, kFp32Tolerance);
}

TEST_P(DFlashCudaTest, EveryLayerOfBothRoundsAgreesInBf16) { ExpectGolden(golden_.weights, kBf16Tolerance); }

INSTANTIATE_TEST_SUITE_P(Goldens, DFlashCudaTest, ::testing::ValuesIn(testing::kGoldenDrafters),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace arborist::drafter
