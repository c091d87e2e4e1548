#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstddef>

#include "kernels/kernel_overlap/kernel_overlap.cuh"
#include "kernels/tree_attention_mla/work_list.h"

namespace arborist::kernels::cuda {
namespace {

constexpr int kThreads = 512;
constexpr int kWarps = kThreads / 32;

// Sum of value over the threads up to and with this one, and over all.
struct Scan {
  int32_t inclusive;
  int32_t total;
};

__device__ Scan BlockScan(int32_t value, int32_t* warp_sum) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  for (int offset = 1; offset < 32; offset *= 2) {
    const int32_t below = __shfl_up_sync(0xffffffffu, value, offset);
    value += lane >= offset ? below : 0;
  }
  if (lane == 31) {
    warp_sum[warp] = value;
  }
  __syncthreads();
  Scan scan{value, 0};
  for (int i = 0; i < kWarps; ++i) {
    scan.inclusive += i < warp ? warp_sum[i] : 0;
    scan.total += warp_sum[i];
  }
  __syncthreads();
  return scan;
}

// The row's sequence, -1 for padding and outside.
__device__ int32_t Owner(const AttentionProblem& p, int32_t row) {
  return row >= 0 && row < p.rows && p.tail_count[row] > 0 ? p.Sequence(row) : -1;
}

__device__ int32_t FindRuns(const AttentionProblem& p, WorkList& list, int32_t* warp_sum) {
  int32_t runs = 0;
  for (int32_t first = 0; first < p.rows; first += kThreads) {
    const int32_t row = first + static_cast<int32_t>(threadIdx.x);
    const int32_t owner = Owner(p, row);
    const bool begins = owner >= 0 && Owner(p, row - 1) != owner;
    const Scan scan = BlockScan(begins ? 1 : 0, warp_sum);
    Run& run = list.run[runs + scan.inclusive - 1];
    if (begins) {
      run.first_row = row;
    }
    if (owner >= 0 && Owner(p, row + 1) != owner) {
      run.rows = row + 1;  // its end, for the moment
    }
    runs += scan.total;
  }
  __syncthreads();
  return runs;
}

// By one warp.
__device__ void CountItems(const AttentionProblem& p, Run& run) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int32_t first = run.first_row;
  const int32_t end = run.rows;
  int32_t most[3] = {0, 0, 0};
  for (int32_t row = first + lane; row < end; row += 32) {
    const int32_t blocks = p.Blocks(row);
    for (int i = 0; i < 3; ++i) {
      most[i] = CudaSplitBlocks(blocks) == SplitLength(i) ? max(most[i], blocks) : most[i];
    }
  }
  const int32_t rows = end - first;
  const int32_t tiles = CeilDiv32(rows * p.heads, p.queries_per_tile);
  int32_t splits = 0;
  for (int i = 0; i < 3; ++i) {
    most[i] = CeilDiv32(__reduce_max_sync(0xffffffffu, most[i]), SplitLength(i));
    splits += most[i];
  }
  __syncwarp();
  if (lane == 0) {
    run.rows = rows;
    for (int i = 0; i < 3; ++i) {
      run.splits[i] = most[i];
    }
    run.tiles = tiles;
    run.items = splits * tiles + TailItems(p, rows);
  }
}

// Block 0 makes the work list, the others round the queries to bf16 and put them into the order of fragments:
// of eight queries and sixteen columns, lane i has query i / 4 and columns 2 * (i % 4), + 1, + 8 and + 9.
__global__ void MakeWorkList(AttentionProblem p) {
  LetNextKernelStart();
  WaitForKernelBefore();
  if (blockIdx.x > 0) {
    const int64_t count = int64_t{p.rows} * p.heads * p.width / 4;
    const auto groups = static_cast<uint32_t>(p.width / 16);
    for (int64_t i = (blockIdx.x - 1) * int64_t{kThreads} + threadIdx.x; i < count;
         i += int64_t{gridDim.x - 1} * kThreads) {
      const auto group = static_cast<uint32_t>(i / 32);  // eight queries and sixteen columns
      const uint32_t eight = group / groups;
      const auto lane = static_cast<uint32_t>(i % 32);
      const auto* from = reinterpret_cast<const float2*>(p.query + (int64_t{eight} * 8 + lane / 4) * p.width +
                                                         (group - eight * groups) * 16 + lane % 4 * 2);
      const __nv_bfloat162 rounded[2] = {__floats2bfloat162_rn(from[0].x, from[0].y),
                                         __floats2bfloat162_rn(from[4].x, from[4].y)};
      reinterpret_cast<uint2*>(p.query_bf16)[i] = *reinterpret_cast<const uint2*>(rounded);
    }
    return;
  }
  __shared__ int32_t warp_sum[kWarps];
  auto& list = *reinterpret_cast<WorkList*>(p.list);
  const int32_t runs = FindRuns(p, list, warp_sum);
  for (int32_t i = static_cast<int32_t>(threadIdx.x) / 32; i < runs; i += kWarps) {
    CountItems(p, list.run[i]);
  }
  __syncthreads();
  int32_t items = 0;
  for (int32_t first = 0; first < runs; first += kThreads) {
    const int32_t i = first + static_cast<int32_t>(threadIdx.x);
    const int32_t own = i < runs ? list.run[i].items : 0;
    const Scan scan = BlockScan(own, warp_sum);
    if (i < runs) {
      list.run[i].offset = items + scan.inclusive - own;
    }
    items += scan.total;
  }
  if (threadIdx.x == 0) {
    list.ticket = 0;
    list.items = items;
    list.runs = runs;
  }
}

}  // namespace

absl::Status LaunchWorkList(const AttentionProblem& p, void* stream) {
  const int64_t quads = int64_t{p.rows} * p.heads * p.width / 4;
  const auto blocks = static_cast<unsigned>(1 + min((quads + kThreads - 1) / kThreads, int64_t{1024}));
  return LaunchOverlapped("tree_attention_mla work list", MakeWorkList, {.grid = blocks, .block = kThreads},
                          stream, p);
}

}  // namespace arborist::kernels::cuda
