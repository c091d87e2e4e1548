#include <cuda_runtime.h>

#include "common/base/status_macros.h"
#include "common/device/cuda_status.h"
#include "kernels/kernel_overlap/kernel_overlap.cuh"
#include "kernels/tree_attention_mla/row_attention.cuh"
#include "kernels/tree_attention_mla/row_indices.cuh"

namespace arborist::kernels::cuda {

// grid rows * heads / 8 * parts, in clusters of all parts
template <int latent, int rope>
__global__ void __launch_bounds__(kRowThreads, 2) RowAttentionJoined(const AttentionProblem p) {
  LetNextKernelStart();
  extern __shared__ __align__(128) unsigned char memory[];
  const int32_t pieces = p.heads / kRowQueries;
  const auto index = static_cast<int32_t>(blockIdx.x) / p.parts;
  AskForIndices(p, index / pieces);
  WaitForKernelBefore();
  RowPart<latent, rope>(p, index / pieces, index % pieces * kRowQueries,
                        static_cast<int32_t>(blockIdx.x) % p.parts, memory)
      .RunJoined();
}

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

// A cluster of all parts of a tile joins them sooner than another kernel would, but larger clusters,
// and many, wait for room in one part of the GPU.
constexpr int kMostClusterParts = 3;
constexpr int64_t kMostClusterBlocks = 64;

template <int latent, int rope>
absl::Status Launch(const AttentionProblem& p, bool joined, void* stream) {
  const auto kernel = joined ? RowAttentionJoined<latent, rope> : RowAttention<latent, rope>;
  constexpr int kShared = RowLayout<latent, rope>::kBytes;
  RETURN_IF_ERROR(  // of the current device; ranks have one each
      CudaStatus(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kShared),
                 "tree_attention_mla rows: shared memory"));
  const auto tiles = static_cast<unsigned>(p.rows * (p.heads / kRowQueries));
  const auto parts = static_cast<unsigned>(p.parts);
  if (!joined) {
    RETURN_IF_ERROR(LaunchOverlapped("tree_attention_mla rows", kernel,
                                     {.grid = {tiles, parts}, .block = kRowThreads, .shared_bytes = kShared},
                                     stream, p));
    return LaunchJoinParts(p, stream);
  }
  return LaunchOverlapped(
      "tree_attention_mla rows", kernel,
      {.grid = tiles * parts, .block = kRowThreads, .shared_bytes = kShared, .cluster = parts}, stream, p);
}

}  // namespace

absl::Status LaunchRowAttention(const AttentionProblem& p, void* stream) {
  int device = 0;
  int clusters = 0;
  RETURN_IF_ERROR(CudaStatus(cudaGetDevice(&device), "device"));
  RETURN_IF_ERROR(CudaStatus(cudaDeviceGetAttribute(&clusters, cudaDevAttrClusterLaunch, device), "device"));
  const int64_t blocks = int64_t{p.rows} * (p.heads / kRowQueries) * p.parts;
  const bool joined = clusters != 0 && p.parts <= kMostClusterParts && blocks <= kMostClusterBlocks;
  return p.latent == 512 ? Launch<512, 64>(p, joined, stream) : Launch<128, 32>(p, joined, stream);
}

}  // namespace arborist::kernels::cuda
