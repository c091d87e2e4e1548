#pragma once

#include <cuda_runtime.h>

#include "kernels/tree_attention_mla/tensor_layout.cuh"

// The steps of an item: which 16 keys each reads, and for whom.
namespace arborist::kernels::cuda {

// Where they are listed, in shared memory.
struct StepList {
  int32_t* limit;  // [queries] keys that the query has here
  int32_t* part;   // [queries] which of the query's parts this is; undefined without keys
  int32_t* slot;   // [steps, 16], -1 past the end of a tail
  int32_t*
      step;  // [steps] of a tail: index of its 16 keys + 16 * (0: for all rows; else 1 + the row's index)
};

// A split's steps follow its positions; one of a query that has no such split, or a shorter one, does nothing
// to it. Ends without a barrier.
__device__ inline void ListSplit(const AttentionProblem& p, const Item& item, const StepList& list) {
  const auto thread = static_cast<int>(threadIdx.x);
  const int32_t split = item.split_blocks;
  if (thread < item.tile_queries) {
    int32_t limit = 0;
    if (thread < item.queries) {
      const int32_t blocks = p.Blocks(static_cast<int32_t>((item.query + thread) / p.heads));
      if (CudaSplitBlocks(blocks) == split) {
        limit = min(max(blocks - item.split * split, 0), split) * kPageRows;
      }
    }
    list.limit[thread] = limit;
    list.part[thread] = item.split;
  }
  const int32_t first = item.split * split * kPageRows;
  const int32_t keys = min(split * kPageRows, p.blocks * kPageRows - first);
  for (int32_t i = thread; i < keys; i += kTensorThreads) {
    list.slot[i] = static_cast<int32_t>(p.PrefixSlot(p.Sequence(item.first_row), first + i));
  }
}

// Tails of up to eight rows. Where all of them have the same 16 keys, mostly committed ones, one step serves
// all; else each row has a step of its own, in which the others' weights are zero. Either way a row sees its
// keys in order. Returns the number of steps; `memory` is scratch for [8 * 128 + 8] integers. Ends with a
// barrier.
__device__ inline int ListTails(const AttentionProblem& p, const Item& item, const StepList& list,
                                int32_t* memory) {
  constexpr int kTailSlots = kMostTailRows * kTileKeys;
  static_assert(kTailSlots > kMaxTailKeys && kTensorThreads / 32 == kMostTailRows);
  const auto thread = static_cast<int>(threadIdx.x);
  if (thread < item.tile_queries) {
    const auto row = static_cast<int32_t>((item.query + thread) / p.heads);
    const bool inside = thread < item.queries;
    list.limit[thread] = inside ? p.TailCount(row) : 0;
    list.part[thread] = inside ? Splits(p.Blocks(row)) : 0;
  }
  for (int i = thread; i < item.rows * kTailSlots; i += kTensorThreads) {
    const int32_t row = item.first_row + i / kTailSlots;
    const int key = i % kTailSlots;
    memory[i] = key < p.TailCount(row) ? static_cast<int32_t>(p.TailSlot(row, key)) : -1;
  }
  __syncthreads();
  // A warp for each sixteen keys.
  const int lane = thread % 32;
  const int index = thread / 32;
  const int32_t* own = memory + index * kTileKeys;
  bool equal = true;
  for (int i = lane; i < (item.rows - 1) * kTileKeys; i += 32) {
    equal = equal && own[(1 + i / kTileKeys) * kTailSlots + i % kTileKeys] == own[i % kTileKeys];
  }
  const bool shared = __all_sync(0xffffffffu, equal);
  const bool has = lane < item.rows && own[lane * kTailSlots] >= 0;
  unsigned rows = __ballot_sync(0xffffffffu, has);
  rows = shared ? rows & 1 : rows;
  int32_t* counts = memory + kMostTailRows * kTailSlots;
  if (lane == 0) {
    counts[index] = __popc(rows);
  }
  __syncthreads();
  int at = 0;
  int total = 0;
  for (int i = 0; i < kMostTailRows; ++i) {
    at += i < index ? counts[i] : 0;
    total += counts[i];
  }
  for (; rows != 0; rows &= rows - 1, ++at) {
    const int row = __ffs(static_cast<int>(rows)) - 1;
    if (lane < kTileKeys) {
      list.slot[at * kTileKeys + lane] = own[row * kTailSlots + lane];
    }
    if (lane == 0) {
      list.step[at] = index + 16 * (shared ? 0 : 1 + row);
    }
  }
  __syncthreads();
  return total;
}

}  // namespace arborist::kernels::cuda
