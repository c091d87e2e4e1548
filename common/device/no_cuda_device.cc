// Built instead of cuda_device.cc where there is no nvcc.
#include "common/device/device.h"

namespace arborist {

absl::StatusOr<std::unique_ptr<Device>> OpenCudaDevice(const CudaDeviceOptions&, DeviceFault) {
  return absl::FailedPreconditionError(
      "device=CUDA, expected CPU: this program was built without CUDA (no nvcc was found)");
}

}  // namespace arborist
