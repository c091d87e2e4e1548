#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstring>
#include <nv/target>
#include <type_traits>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "common/device/cuda_status.h"

// A kernel may be launched so that it begins while the one before it on the stream still runs, on GPUs that
// can do that (9.0 and later); recorded work keeps it so. See README.md for the rules.
namespace arborist::kernels::cuda {

// From here on blocks of the next kernel may take what room is left.
__device__ inline void LetNextKernelStart() {
  NV_IF_TARGET(NV_PROVIDES_SM_90, (asm volatile("griddepcontrol.launch_dependents;" ::: "memory");))
}
// Until the kernel before has ended and all that it wrote can be read. Elsewhere it has already.
__device__ inline void WaitForKernelBefore() {
  NV_IF_TARGET(NV_PROVIDES_SM_90, (asm volatile("griddepcontrol.wait;" ::: "memory");))
}

// What a kernel looks at before it waits because an earlier wait covers it, in words of 8 bytes past the L1,
// which may hold what lay there before.
template <typename T>
__device__ inline T LoadPastL1(const T* from) {
  static_assert(std::is_trivially_copyable_v<T> && sizeof(T) % 8 == 0 && alignof(T) == 8);
  unsigned long long words[sizeof(T) / 8];
#pragma unroll
  for (size_t i = 0; i < sizeof(T) / 8; ++i) {
    words[i] = __ldcg(reinterpret_cast<const unsigned long long*>(from) + i);
  }
  T value;
  memcpy(&value, words, sizeof(T));
  return value;
}

struct KernelShape {
  dim3 grid;
  dim3 block;
  size_t shared_bytes = 0;
  unsigned cluster = 1;  // blocks along grid.x; more than 1 needs 9.0
};

// Enqueues a kernel that keeps the rules on a cudaStream_t. An error names it as `name`.
template <typename... Params, typename... Args>
absl::Status LaunchOverlapped(absl::string_view name, void (*kernel)(Params...), const KernelShape& shape,
                              void* stream, Args&&... args) {
  int device = 0, major = 0;
  cudaError_t error = cudaGetDevice(&device);
  if (error == cudaSuccess) {
    error = cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
  }
  if (error != cudaSuccess) {
    return CudaStatus(error, name);
  }
  cudaLaunchAttribute attributes[2] = {};
  unsigned count = 0;
  if (major >= 9) {
    attributes[count].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[count++].val.programmaticStreamSerializationAllowed = 1;
  }
  if (shape.cluster > 1) {
    attributes[count].id = cudaLaunchAttributeClusterDimension;
    attributes[count++].val.clusterDim = {shape.cluster, 1, 1};
  }
  cudaLaunchConfig_t config = {};
  config.gridDim = shape.grid;
  config.blockDim = shape.block;
  config.dynamicSmemBytes = shape.shared_bytes;
  config.stream = static_cast<cudaStream_t>(stream);
  config.attrs = attributes;
  config.numAttrs = count;
  return CudaStatus(cudaLaunchKernelEx(&config, kernel, std::forward<Args>(args)...), name);
}

}  // namespace arborist::kernels::cuda
