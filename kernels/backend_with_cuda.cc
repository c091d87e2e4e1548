#include "kernels/backend.h"

namespace arborist::kernels {

const KernelSet& KernelsFor(DeviceKind kind) {
  return kind == DeviceKind::kCuda ? CudaKernels() : CpuKernels();
}

}  // namespace arborist::kernels
