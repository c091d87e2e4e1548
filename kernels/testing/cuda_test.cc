#include "kernels/testing/cuda_test.h"

namespace arborist::kernels::testing {

void CudaTest::SetUp() {
  int count = 0;
  if (cudaGetDeviceCount(&count) != cudaSuccess || count == 0) {
    GTEST_SKIP() << "skipped: no CUDA device";
  }
  ASSERT_TRUE(CudaStatus(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "stream").ok());
}

void CudaTest::TearDown() {
  if (stream_ != nullptr) {
    Finish();
    cudaStreamDestroy(stream_);
  }
}

void CudaTest::Finish() {
  const absl::Status status = CudaStatus(cudaStreamSynchronize(stream_), "kernels of this test");
  EXPECT_TRUE(status.ok()) << status.ToString();
}

}  // namespace arborist::kernels::testing
