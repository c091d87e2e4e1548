#pragma once

#include <cuda_runtime_api.h>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace arborist {

// OK for cudaSuccess; ResourceExhausted for an allocation that failed; else Internal: "<what>: <CUDA's own
// words>".
absl::Status CudaStatus(cudaError_t error, absl::string_view what);

// What the launch just before this call said. Faults while the kernel runs surface at Device::Synchronize.
absl::Status LaunchStatus(absl::string_view kernel);

}  // namespace arborist
