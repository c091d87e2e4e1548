// The decoder on a GPU. Skipped without one.

#include <gtest/gtest.h>

#include "kernels/backend.h"
#include "verifier/model/testing/golden_checks.h"
#include "verifier/model/testing/stored_tensors.h"

namespace arborist::verifier {
namespace {

// fp32 weights: only the order of sums differs from the goldens' and the CPU's.
constexpr double kF32Tolerance = 1e-4;

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

  std::unique_ptr<Device> device_;
  testing::HarnessOptions options_;
};

TEST_P(ModelCuda, WithF32WeightsLogitsHiddenStatesAndEveryArgmaxAgree) {
  options_.directory = testing::WidenedGolden(GetParam());
  testing::CheckGolden(GetParam(), options_, kF32Tolerance);
}

TEST_P(ModelCuda, WithF32WeightsChunksAndTreesChangeNoBit) {
  options_.directory = testing::WidenedGolden(GetParam());
  testing::CheckChunks(GetParam(), options_);
  testing::CheckTreeNodes(GetParam(), options_);
}

TEST_P(ModelCuda, WithBf16WeightsAndKvChunksAndTreesChangeNoBit) {
  options_.kv_type = DType::kBF16;
  testing::CheckChunks(GetParam(), options_);
  testing::CheckTreeNodes(GetParam(), options_);
}

INSTANTIATE_TEST_SUITE_P(Targets, ModelCuda, ::testing::ValuesIn(testing::kGoldenTargets),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace arborist::verifier
