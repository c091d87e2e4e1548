#include "common/device/cuda_status.h"

#include "absl/strings/str_cat.h"

namespace arborist {

absl::Status CudaStatus(cudaError_t error, absl::string_view what) {
  if (error == cudaSuccess) {
    return absl::OkStatus();
  }
  const std::string message =
      absl::StrCat(what, ": ", cudaGetErrorString(error), " (", cudaGetErrorName(error), ")");
  return error == cudaErrorMemoryAllocation ? absl::ResourceExhaustedError(message)
                                            : absl::InternalError(message);
}

absl::Status LaunchStatus(absl::string_view kernel) { return CudaStatus(cudaGetLastError(), kernel); }

}  // namespace arborist
