#include <cuda_runtime.h>

#include <algorithm>

#include "common/base/math.h"
#include "common/base/status_macros.h"
#include "common/device/cuda_status.h"
#include "kernels/kernel_overlap/kernel_overlap.cuh"
#include "kernels/tree_attention_mla/tensor_attention.cuh"

namespace arborist::kernels::cuda {

// Blocks take items until none is left.
template <int latent, int rope, int tile_queries, int tail_queries, int blocks_per_sm>
__global__ void __launch_bounds__(kTensorThreads, blocks_per_sm) TensorAttention(const AttentionProblem p) {
  LetNextKernelStart();
  WaitForKernelBefore();
  extern __shared__ __align__(128) unsigned char memory[];
  __shared__ Item item;
  __shared__ int32_t taken;
  auto& list = *reinterpret_cast<WorkList*>(p.list);
  const int32_t items = list.items;
  const int32_t runs = list.runs;
  auto index = static_cast<int32_t>(blockIdx.x);
  while (index < items) {
    int32_t next = 0;
    if (threadIdx.x == 0) {  // taken early, so that nobody waits for it
      next = static_cast<int32_t>(gridDim.x) + atomicAdd(&list.ticket, 1);
    }
    for (int32_t i = static_cast<int32_t>(threadIdx.x); i < runs; i += kTensorThreads) {
      const Run& run = list.run[i];
      if (index >= run.offset && index < run.offset + run.items) {
        item = MakeItem(p, run, index - run.offset);
      }
    }
    __syncthreads();
    if (item.split_blocks == 0) {
      TensorItem<latent, rope, tail_queries>(p, item, memory).template Run<true>();
    } else {
      TensorItem<latent, rope, tile_queries>(p, item, memory).template Run<false>();
    }
    if (threadIdx.x == 0) {
      taken = next;
    }
    __syncthreads();
    index = taken;
  }
}

namespace {

constexpr int kFewQueries = 16;

template <int latent, int rope, int tile_queries, int tail_queries, int blocks_per_sm>
absl::Status Launch(AttentionProblem p, int processors, cudaStream_t stream) {
  constexpr auto kKernel = TensorAttention<latent, rope, tile_queries, tail_queries, blocks_per_sm>;
  constexpr int kShared =
      std::max(Layout<latent, rope, tile_queries>::kBytes, Layout<latent, rope, tail_queries>::kBytes);
  RETURN_IF_ERROR(  // of the current device; ranks have one each
      CudaStatus(cudaFuncSetAttribute(kKernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kShared),
                 "tree_attention_mla: shared memory"));
  p.queries_per_tile = tile_queries;
  p.queries_per_tail = tail_queries;
  p.rows_per_tail = std::clamp(tail_queries / p.heads, 1, kMostTailRows);
  if (tail_queries == kFewQueries) {
    p.rows_per_tail = 1;
  }
  RETURN_IF_ERROR(LaunchWorkList(p, stream));
  const KernelShape shape{.grid = static_cast<unsigned>(processors * blocks_per_sm),
                          .block = kTensorThreads,
                          .shared_bytes = kShared};
  RETURN_IF_ERROR(LaunchOverlapped("tree_attention_mla", kKernel, shape, stream, p));
  return LaunchJoinParts(p, stream);
}

// Queries of a tile. Where all items of small tiles run at once, those, for their steps are shortest; else
// tiles that leave few columns of an average sequence empty. No bit depends on it.
int TileQueries(const AttentionProblem& p, int processors) {
  const int64_t sequences = std::clamp(p.sequences, 1, p.rows);
  const int64_t queries = CeilDiv(int64_t{p.rows} * p.heads, sequences);
  const int64_t small_items = CeilDiv(queries, kFewQueries) * sequences * (p.parts - 1) +
                              int64_t{p.rows} * CeilDiv(p.heads, kFewQueries);
  if (small_items <= processors) {
    return kFewQueries;
  }
  constexpr int kManySequences = 8;  // from here on equal costs mean the smaller
  int best = 64;
  int64_t least = INT64_MAX;
  for (const int tile : {64, 48, 32, 16}) {
    // A tile's cost has a part that does not depend on its queries: some 24 queries' worth.
    const int64_t cost = CeilDiv(queries, tile) * (tile + 24);
    if (cost < least || (cost == least && sequences >= kManySequences)) {
      least = cost;
      best = tile;
    }
  }
  return best;
}

// Few rows: a tail an item, for they all run at once. Many rows: tails that share most of their keys
// together.
template <int latent, int rope>
absl::Status LaunchFor(const AttentionProblem& p, cudaStream_t stream) {
  int device = 0;
  int processors = 0;
  RETURN_IF_ERROR(CudaStatus(cudaGetDevice(&device), "device"));
  RETURN_IF_ERROR(
      CudaStatus(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device), "device"));
  // Where all parts of all rows run nearly at once, two blocks an SM. A part of four blocks of prefix is
  // short.
  const int64_t most_blocks = p.blocks <= 32 ? 10 * processors / 3 : 2 * processors;
  if (int64_t{p.rows} * (p.heads / 8) * p.parts <= most_blocks) {
    return LaunchRowAttention(p, stream);
  }
  constexpr int kManyRows = 160;
  const bool together = p.rows > kManyRows || p.heads > kFewQueries;
  switch (TileQueries(p, processors)) {
    case 16:
      return Launch<latent, rope, 16, 16, 2>(p, processors, stream);
    case 32:
      return Launch<latent, rope, 32, 16, 1>(p, processors, stream);
    case 48:
      return together ? Launch<latent, rope, 48, 48, 1>(p, processors, stream)
                      : Launch<latent, rope, 48, 16, 1>(p, processors, stream);
    default:
      return together ? Launch<latent, rope, 64, 64, 1>(p, processors, stream)
                      : Launch<latent, rope, 64, 16, 1>(p, processors, stream);
  }
}

}  // namespace

bool HasTensorAttention(const AttentionProblem& p, DType cache_dtype) {
  return cache_dtype == DType::kBF16 && p.heads % 8 == 0 &&
         ((p.latent == 512 && p.width == 576) || (p.latent == 128 && p.width == 160));
}

absl::Status LaunchTensorAttention(const AttentionProblem& p, void* stream) {
  auto* cuda_stream = static_cast<cudaStream_t>(stream);
  return p.latent == 512 ? LaunchFor<512, 64>(p, cuda_stream) : LaunchFor<128, 32>(p, cuda_stream);
}

}  // namespace arborist::kernels::cuda
