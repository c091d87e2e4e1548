#include <cuda_runtime.h>

#include <algorithm>

#include "absl/status/statusor.h"
#include "common/base/status_macros.h"
#include "common/device/cuda_status.h"
#include "kernels/kernel_overlap/kernel_overlap.cuh"
#include "kernels/tree_attention_mla/row_attention.cuh"
#include "kernels/tree_attention_mla/row_indices.cuh"

namespace arborist::kernels::cuda {

// grid (rows * heads / 8, parts)
template <int latent, int rope>
__global__ void __launch_bounds__(kRowThreads, 2) RowAttention(const AttentionProblem p) {
  LetNextKernelStart();
  extern __shared__ __align__(128) unsigned char memory[];
  const int32_t pieces = p.heads / kRowQueries;
  const auto index = static_cast<int32_t>(blockIdx.x);
  AskForIndices(p, index / pieces);
  WaitForKernelBefore();
  RowPart<latent, rope>(p, index / pieces, index % pieces * kRowQueries, static_cast<int32_t>(blockIdx.y),
                        memory)
      .Run();
}

namespace {

// Blocks are placed while the kernel before still runs. Where each could have a processor of its own, two
// must not share one because others were taken then: they ask for more than half of its memory.
struct SharedBytes {
  int limit;   // of the function on this device: one for all calls, for other threads launch it too
  int launch;  // of this call
};

absl::StatusOr<SharedBytes> ChooseSharedBytes(int needed, int64_t blocks) {
  int device = 0, processors = 0, bytes = 0;
  RETURN_IF_ERROR(CudaStatus(cudaGetDevice(&device), "device"));
  RETURN_IF_ERROR(
      CudaStatus(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device), "device"));
  RETURN_IF_ERROR(CudaStatus(
      cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerMultiprocessor, device), "device"));
  const int alone = std::max(needed, bytes / 2);  // a block takes some more itself
  return SharedBytes{.limit = alone, .launch = blocks <= processors ? alone : needed};
}

template <int latent, int rope>
absl::Status Launch(const AttentionProblem& p, void* stream) {
  constexpr auto kKernel = RowAttention<latent, rope>;
  const auto tiles = static_cast<unsigned>(p.rows * (p.heads / kRowQueries));
  const auto parts = static_cast<unsigned>(p.parts);
  ASSIGN_OR_RETURN(const SharedBytes shared,
                   ChooseSharedBytes(RowLayout<latent, rope>::kBytes, int64_t{tiles} * parts));
  RETURN_IF_ERROR(  // of the current device; ranks have one each
      CudaStatus(cudaFuncSetAttribute(kKernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared.limit),
                 "tree_attention_mla rows: shared memory"));
  RETURN_IF_ERROR(LaunchOverlapped(
      "tree_attention_mla rows", kKernel,
      {.grid = {tiles, parts}, .block = kRowThreads, .shared_bytes = static_cast<size_t>(shared.launch)},
      stream, p));
  return LaunchJoinParts(p, stream);
}

}  // namespace

absl::Status LaunchRowAttention(const AttentionProblem& p, void* stream) {
  return p.latent == 512 ? Launch<512, 64>(p, stream) : Launch<128, 32>(p, stream);
}

}  // namespace arborist::kernels::cuda
