#include <cuda_runtime.h>

#include <cstdint>

#include "common/device/small_copy.h"

namespace arborist {
namespace {

constexpr size_t kMostBytes = 64 * 1024;
constexpr int kThreads = 256;

bool IsOf(const void* data, cudaMemoryType type) {
  cudaPointerAttributes attributes;
  return cudaPointerGetAttributes(&attributes, data) == cudaSuccess && attributes.type == type;
}

// Volatile: the host writes between the starts of recorded work, so nothing may be kept.
__global__ void __launch_bounds__(kThreads) CopyBytes(char* to, const char* from, uint32_t bytes) {
  const uint32_t at = (blockIdx.x * kThreads + threadIdx.x) * 16;
  if (at + 16 <= bytes) {
    uint4 v;
    asm volatile("ld.volatile.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(from + at));
    *reinterpret_cast<uint4*>(to + at) = v;
    return;
  }
  for (uint32_t i = at; i < bytes; ++i) {
    to[i] = *static_cast<const volatile char*>(from + i);
  }
}

}  // namespace

bool SuitsKernel(const void* to, const void* from, size_t bytes) {
  if (bytes == 0 || bytes > kMostBytes || reinterpret_cast<uintptr_t>(to) % 16 != 0 ||
      reinterpret_cast<uintptr_t>(from) % 16 != 0) {
    return false;
  }
  return (IsOf(to, cudaMemoryTypeDevice) && IsOf(from, cudaMemoryTypeHost)) ||
         (IsOf(to, cudaMemoryTypeHost) && IsOf(from, cudaMemoryTypeDevice));
}

cudaError_t CopyByKernel(void* to, const void* from, size_t bytes, cudaStream_t stream) {
  const auto blocks = static_cast<unsigned>((bytes + kThreads * 16 - 1) / (kThreads * 16));
  CopyBytes<<<blocks, kThreads, 0, stream>>>(static_cast<char*>(to), static_cast<const char*>(from),
                                             static_cast<uint32_t>(bytes));
  return cudaGetLastError();
}

cudaError_t LoadCopyKernel() {
  cudaFuncAttributes attributes;
  return cudaFuncGetAttributes(&attributes, CopyBytes);
}

}  // namespace arborist
