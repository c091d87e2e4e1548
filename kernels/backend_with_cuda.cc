#include "kernels/backend.h"

namespace arborist::kernels {

const KernelSet& KernelsFor(DeviceKind kind, Numerics numerics) {
  if (kind == DeviceKind::kCpu) {
    return CpuKernels();
  }
  return numerics == Numerics::kFast ? FastCudaKernels() : CudaKernels();
}

}  // namespace arborist::kernels
