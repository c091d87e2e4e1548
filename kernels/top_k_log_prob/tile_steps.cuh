#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/top_k_log_prob/candidate_buffer.cuh"
#include "kernels/top_k_log_prob/logits_tile.cuh"
#include "kernels/vocabulary_row/exp_sum.cuh"

namespace arborist::kernels::cuda {

// What a block does with each tile of a row: its best values go into the candidate buffer, its exponentials
// into the sum.

// The q-th largest lane maximum of each warp, q warps * k at least k: that many values reach the least of
// them.
__device__ inline float FirstThreshold(CandidateBuffer& buffer, float thread_max, int32_t k) {
  uint32_t key = OrderKey(thread_max);
  uint32_t largest = 0;
  for (int32_t i = 0; i < (k + kBufferWarps - 1) / kBufferWarps; ++i) {
    largest = __reduce_max_sync(0xffffffffu, key);
    const int first = __ffs(static_cast<int>(__ballot_sync(0xffffffffu, key == largest))) - 1;
    key = static_cast<int>(threadIdx.x % 32) == first ? 0 : key;
  }
  if (threadIdx.x % 32 == 0) {
    buffer.warp_value[threadIdx.x / 32] = FloatOfKey(largest);
  }
  __syncthreads();
  float threshold = buffer.warp_value[0];
  for (int warp = 1; warp < kBufferWarps; ++warp) {
    threshold = fminf(threshold, buffer.warp_value[warp]);
  }
  return threshold;
}

template <typename Tile>
__device__ void PushStep(CandidateBuffer& buffer, const Tile& tile, int step, int64_t first,
                         int64_t vocabulary, float threshold) {
  if (tile.MaxOfStep(step) >= threshold) {
    const int64_t id = StepId(first, step);
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const float value = tile.At(step, i);
      if (value >= threshold && id + i < vocabulary) {
        buffer.Push(RankKey(value, static_cast<int32_t>(id + i)));
      }
    }
  }
}

// Puts the tile's values from the threshold on into the buffer, which holds `held` keys and at most
// kBufferKept afterwards.
template <typename Tile>
__device__ void Offer(CandidateBuffer& buffer, const Tile& tile, int64_t first, int64_t vocabulary, int32_t k,
                      float* threshold, int32_t* held) {
#pragma unroll
  for (int step = 0; step < kTileSteps; ++step) {
    PushStep(buffer, tile, step, first, vocabulary, *threshold);
  }
  __syncthreads();
  const int32_t count = buffer.count;
  __syncthreads();
  if (count <= CandidateBuffer::kCapacity) {
    *held = count;
    if (count > kBufferKept) {
      *threshold = Reduce(buffer, count, k);
      *held = k;
    }
    return;
  }
  // Too many for the buffer (many ties, or values that rise with the id): once more, step by step.
  if (threadIdx.x == 0) {
    buffer.count = *held;
  }
  __syncthreads();
#pragma unroll 1
  for (int step = 0; step < kTileSteps; ++step) {
#pragma unroll
    for (int s = 0; s < kTileSteps; ++s) {  // by constants, so that the tile stays in registers
      if (s == step) {
        PushStep(buffer, tile, s, first, vocabulary, *threshold);
      }
    }
    __syncthreads();
    *held = buffer.count;
    __syncthreads();
    if (*held > kBufferKept) {
      *threshold = Reduce(buffer, *held, k);
      *held = k;
    }
  }
}

// Adds the tile to the thread's sum.
template <typename Tile>
__device__ void AddExp(const Tile& tile, float tile_max, float scale, ExpSum* sum) {
  if (tile_max == MinusInfinity()) {
    return;
  }
  const float max = fmaxf(sum->max, tile_max);
  float added = Rescaled(*sum, max, scale);
#pragma unroll
  for (int step = 0; step < kTileSteps; ++step) {
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      added += FastExp2((tile.At(step, i) - max) * scale);
    }
  }
  *sum = {max, added};
}

}  // namespace arborist::kernels::cuda
