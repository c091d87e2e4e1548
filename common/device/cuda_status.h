#pragma once

#include <cuda_runtime_api.h>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace arborist {

// OK for cudaSuccess; ResourceExhausted for an allocation that failed; else Internal: "<what>: <CUDA's own
// words>".
absl::Status CudaStatus(cudaError_t error, absl::string_view what);

// What the launch just before this call said. Faults while the kernel runs surface at Device::Synchronize.
absl::Status LaunchStatus(absl::string_view kernel);

// While it lives, it hears the name of everything that this thread enqueues without an error.
class LaunchListener {
 public:
  using Heard = absl::FunctionRef<void(absl::string_view what)>;
  explicit LaunchListener(Heard heard);
  ~LaunchListener();
  LaunchListener(const LaunchListener&) = delete;
  LaunchListener& operator=(const LaunchListener&) = delete;

 private:
  const Heard heard_;
  friend absl::Status CudaStatus(cudaError_t error, absl::string_view what);
};

// From now on, in the whole process, CudaStatus waits for the GPU: a fault is told by the name of its kernel.
// Not while work is recorded.
void WaitForEveryLaunch();

}  // namespace arborist
