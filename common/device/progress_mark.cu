#include <cuda_runtime.h>

#include <nv/target>

#include "common/device/progress_mark.h"

namespace arborist {
namespace {

// It lets the next kernel start only after the wait: that one may rely on everything before the mark.
__global__ void Mark(volatile uint32_t* word, uint32_t part) {
  NV_IF_TARGET(NV_PROVIDES_SM_90, (asm volatile("griddepcontrol.wait;" ::: "memory");))
  NV_IF_TARGET(NV_PROVIDES_SM_90, (asm volatile("griddepcontrol.launch_dependents;" ::: "memory");))
  *word = part;
}

}  // namespace

// Overlapped like the kernels around it (kernels/kernel_overlap), or it would cost twice as much.
cudaError_t EnqueueMark(volatile uint32_t* word, uint32_t part, cudaStream_t stream) {
  int device = 0, major = 0;
  cudaError_t error = cudaGetDevice(&device);
  if (error == cudaSuccess) {
    error = cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
  }
  if (error != cudaSuccess) {
    return error;
  }
  cudaLaunchAttribute overlapped = {};
  overlapped.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  overlapped.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = 1;
  config.blockDim = 1;
  config.stream = stream;
  config.attrs = &overlapped;
  config.numAttrs = major >= 9 ? 1 : 0;
  return cudaLaunchKernelEx(&config, Mark, word, part);
}

cudaError_t LoadMarkKernel() {
  cudaFuncAttributes attributes;
  return cudaFuncGetAttributes(&attributes, Mark);
}

}  // namespace arborist
