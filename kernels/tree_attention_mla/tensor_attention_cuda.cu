#include <cuda_runtime.h>

#include <algorithm>

#include "common/base/status_macros.h"
#include "common/device/cuda_status.h"
#include "kernels/kernel_overlap/kernel_overlap.cuh"
#include "kernels/tree_attention_mla/division.h"
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

template <int latent, int rope>
absl::Status LaunchFor(const AttentionProblem& p, cudaStream_t stream) {
  int device = 0;
  int processors = 0;
  RETURN_IF_ERROR(CudaStatus(cudaGetDevice(&device), "device"));
  RETURN_IF_ERROR(
      CudaStatus(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device), "device"));
  const Division division = DivisionOf(
      {.rows = p.rows, .heads = p.heads, .sequences = p.sequences, .blocks = p.blocks, .parts = p.parts},
      processors);
  if (division.by_rows) {
    return LaunchRowAttention(p, stream);
  }
  const bool together = division.tail_queries > kFewQueries;
  switch (division.tile_queries) {
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
