#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "common/device/planted_fault.h"

namespace arborist {

// Carries planted faults out on a GPU: what CUDA then reports is real.
class PlantedCudaFault {
 public:
  explicit PlantedCudaFault(DeviceFault fault) : fault_(std::move(fault)) {}

  // What cudaMalloc is asked for in place of `bytes`: more than there is, or enough that nothing else shares
  // its pages and they are gone when it is freed.
  size_t BytesToAllocate(size_t bytes, absl::string_view what);
  void Allocated(void* data, absl::string_view what);

  // Before recorded work starts. A launch error is the result; an illegal access is met by that work's
  // kernels.
  absl::Status BeforeStart(cudaStream_t stream);

 private:
  PlantedFault fault_;
  std::vector<void*> blocks_;  // to be taken
};

}  // namespace arborist
