#include <gtest/gtest.h>

#include <vector>

#include "kernels/kernel_overlap/kernel_overlap.cuh"
#include "kernels/testing/cuda_test.h"

namespace arborist::kernels::cuda {
namespace {

__global__ void AddOne(int* value) {
  LetNextKernelStart();
  WaitForKernelBefore();
  *value += 1;
}

using KernelOverlapCudaTest = testing::CudaTest;

TEST_F(KernelOverlapCudaTest, ARefusedLaunchNamesItsKernelAndIsNotBlamedOnTheNext) {
  testing::DeviceArray<int> value(std::vector<int>{0});
  const auto launch = [&](const KernelShape& shape) {
    return LaunchOverlapped("add_one", AddOne, shape, stream().cuda_stream, value.data());
  };
  EXPECT_EQ(launch({.grid = 1, .block = 2048}).message(),
            "add_one: invalid argument (cudaErrorInvalidValue)");
  const absl::Status shared = launch({.grid = 1, .block = 1, .shared_bytes = 1 << 20});
  EXPECT_EQ(shared.code(), absl::StatusCode::kInternal);
  EXPECT_EQ(shared.message().find("add_one: "), 0u) << shared;
  EXPECT_TRUE(LaunchStatus("the next").ok());
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(launch({.grid = 1, .block = 1}).ok());
  }
  Finish();
  EXPECT_EQ(value.Read()[0], 3);
}

}  // namespace
}  // namespace arborist::kernels::cuda
