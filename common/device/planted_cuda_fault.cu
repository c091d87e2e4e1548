#include "common/base/status_macros.h"
#include "common/device/cuda_status.h"
#include "common/device/planted_cuda_fault.h"

namespace arborist {
namespace {

constexpr size_t kMoreThanAnyGpu = size_t{1} << 50;
// A multiple of the pages that a GPU maps.
constexpr size_t kOwnPages = size_t{32} << 20;
constexpr int kMostThreads = 1024;  // of a block, on every GPU

__global__ void __launch_bounds__(kMostThreads) DoNothing() {}

// With more threads than a block can have. What CUDA says to that.
cudaError_t LaunchTooLarge(cudaStream_t stream) {
  DoNothing<<<1, kMostThreads + 1, 0, stream>>>();
  return cudaGetLastError();
}

}  // namespace

size_t PlantedCudaFault::BytesToAllocate(size_t bytes, absl::string_view what) {
  if (fault_.FailsAllocation()) {
    return kMoreThanAnyGpu;
  }
  return fault_.WillTake(what) ? (bytes / kOwnPages + 1) * kOwnPages : bytes;
}

void PlantedCudaFault::Allocated(void* data, absl::string_view what) {
  if (fault_.WillTake(what)) {
    blocks_.push_back(data);
  }
}

absl::Status PlantedCudaFault::BeforeStart(cudaStream_t stream) {
  if (fault_.FailsLaunch()) {
    return CudaStatus(LaunchTooLarge(stream), "planted_fault");
  }
  if (fault_.TakesMemory()) {
    if (blocks_.empty()) {
      return fault_.NoSuchMemory();
    }
    for (void* block : blocks_) {
      RETURN_IF_ERROR(CudaStatus(cudaFree(block), fault_.memory()));
    }
  }
  return absl::OkStatus();
}

}  // namespace arborist
