#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "common/device/cuda_status.h"
#include "common/tensor/view.h"
#include "common/threads/thread_pool.h"
#include "gtest/gtest.h"

namespace arborist::kernels::testing {

// A test that needs a GPU: without one it is skipped and says so. Work goes to stream().
class CudaTest : public ::testing::Test {
 protected:
  void SetUp() override;
  void TearDown() override;
  StreamView stream() const { return {.threads = nullptr, .cuda_stream = stream_}; }
  // Waits for the stream; a fault of a kernel fails the test here.
  void Finish();

 private:
  cudaStream_t stream_ = nullptr;
};

// An array in device memory, filled from the host and read back. Reads wait for the whole device. The bytes
// behind the array are checked when it is read or dies: writing past the end fails the test.
template <typename T>
class DeviceArray {
 public:
  explicit DeviceArray(const std::vector<T>& values) : DeviceArray(static_cast<int64_t>(values.size())) {
    Write(values);
  }
  // Poisoned: every byte is 0xff (a NaN as fp32, bf16 or fp16; -1 as an integer).
  explicit DeviceArray(int64_t count) : count_(count) {
    const size_t bytes = Bytes() + kGuard;
    EXPECT_TRUE(CudaStatus(cudaMalloc(reinterpret_cast<void**>(&data_), bytes), "test memory").ok());
    EXPECT_EQ(cudaMemset(data_, 0xff, Bytes()), cudaSuccess);
    EXPECT_EQ(cudaMemset(reinterpret_cast<char*>(data_) + Bytes(), 0x5a, kGuard), cudaSuccess);
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);  // the test's stream does not wait for these
  }
  ~DeviceArray() {
    CheckGuard();
    cudaFree(data_);
  }
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;

  void Write(const std::vector<T>& values) {
    EXPECT_EQ(static_cast<int64_t>(values.size()), count_);
    EXPECT_EQ(cudaMemcpy(data_, values.data(), Bytes(), cudaMemcpyHostToDevice), cudaSuccess);
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);  // the copy may still be on its way
  }
  std::vector<T> Read() const {
    std::vector<T> values(static_cast<size_t>(count_));
    EXPECT_TRUE(CudaStatus(cudaDeviceSynchronize(), "test").ok());
    EXPECT_TRUE(CudaStatus(cudaMemcpy(values.data(), data_, Bytes(), cudaMemcpyDeviceToHost), "read").ok());
    CheckGuard();
    return values;
  }

  T* data() const { return data_; }
  int64_t size() const { return count_; }
  View1<T> view() const { return {data_, count_}; }
  View1<const T> const_view() const { return {data_, count_}; }
  View2<T> view(int64_t rows, int64_t columns) const { return {data_, rows, columns, columns}; }
  View2<const T> const_view(int64_t rows, int64_t columns) const { return {data_, rows, columns, columns}; }

 private:
  static constexpr size_t kGuard = 256;
  size_t Bytes() const { return static_cast<size_t>(count_) * sizeof(T); }
  void CheckGuard() const {
    unsigned char guard[kGuard];
    if (cudaMemcpy(guard, reinterpret_cast<char*>(data_) + Bytes(), kGuard, cudaMemcpyDeviceToHost) ==
        cudaSuccess) {
      for (const unsigned char byte : guard) {
        ASSERT_EQ(byte, 0x5a) << "a kernel wrote past the end of an array";
      }
    }
  }

  int64_t count_;
  T* data_ = nullptr;
};

// A stored matrix moved to the device.
inline WeightView OnDevice(const WeightView& host, const DeviceArray<uint8_t>& memory) {
  WeightView view = host;
  view.data = memory.data();
  return view;
}
inline std::vector<uint8_t> BytesOf(const WeightView& matrix) {
  std::vector<uint8_t> bytes(static_cast<size_t>(matrix.rows * matrix.columns) * ByteSize(matrix.dtype));
  std::memcpy(bytes.data(), matrix.data, bytes.size());
  return bytes;
}

}  // namespace arborist::kernels::testing
