// Built instead of backend_with_cuda.cc where there is no nvcc: no CUDA device can be opened there.
#include "common/base/check.h"
#include "kernels/backend.h"

namespace arborist::kernels {

const KernelSet& KernelsFor(DeviceKind kind, Numerics) {
  Check(kind == DeviceKind::kCpu, "a build without CUDA opens CPU devices only");
  return CpuKernels();
}

}  // namespace arborist::kernels
