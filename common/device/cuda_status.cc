#include "common/device/cuda_status.h"

#include <atomic>

#include "absl/strings/str_cat.h"

namespace arborist {
namespace {

thread_local LaunchListener* listener = nullptr;
std::atomic<bool> launch_by_launch{false};

}  // namespace

absl::Status CudaStatus(cudaError_t error, absl::string_view what) {
  if (error == cudaSuccess && launch_by_launch.load(std::memory_order_relaxed)) {
    error = cudaDeviceSynchronize();
  }
  if (error == cudaSuccess) {
    if (listener != nullptr) {
      listener->heard_(what);
    }
    return absl::OkStatus();
  }
  cudaGetLastError();  // told here, and not by the next launch
  const std::string message =
      absl::StrCat(what, ": ", cudaGetErrorString(error), " (", cudaGetErrorName(error), ")");
  return error == cudaErrorMemoryAllocation ? absl::ResourceExhaustedError(message)
                                            : absl::InternalError(message);
}

absl::Status LaunchStatus(absl::string_view kernel) { return CudaStatus(cudaGetLastError(), kernel); }

LaunchListener::LaunchListener(Heard heard) : heard_(heard) { listener = this; }
LaunchListener::~LaunchListener() { listener = nullptr; }

void WaitForEveryLaunch() { launch_by_launch.store(true); }

}  // namespace arborist
