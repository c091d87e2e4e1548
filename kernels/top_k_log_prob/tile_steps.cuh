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
    largest = __reduce_max_sync(kAllLanes, key);
    const int first = __ffs(static_cast<int>(__ballot_sync(kAllLanes, key == largest))) - 1;
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

// A bit for each of the thread's values, of the steps [begin, end), that reaches the threshold.
template <typename Tile>
__device__ uint32_t Reaching(const Tile& tile, int begin, int end, int64_t first, int64_t vocabulary,
                             float threshold) {
  uint32_t reaching = 0;
#pragma unroll
  for (int step = 0; step < kTileSteps; ++step) {
    if (step >= begin && step < end && tile.MaxOfStep(step) >= threshold) {
      const int64_t id = StepId(first, step);
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        reaching |= tile.At(step, i) >= threshold && id + i < vocabulary ? 1u << (8 * step + i) : 0;
      }
    }
  }
  return reaching;
}

// Pushes the marked values: one place reserved for the whole warp. All lanes call it.
template <typename Tile>
__device__ void Push(CandidateBuffer& buffer, const Tile& tile, uint32_t marked, int64_t first) {
  if (__any_sync(kAllLanes, marked != 0) == 0) {
    return;
  }
  const auto lane = threadIdx.x % 32;
  const int32_t own = __popc(marked);
  int32_t upto = own;
#pragma unroll
  for (unsigned offset = 1; offset < 32; offset *= 2) {
    const int32_t other = __shfl_up_sync(kAllLanes, upto, offset);
    upto += lane >= offset ? other : 0;
  }
  int32_t at = 0;
  if (lane == 31) {
    at = atomicAdd(&buffer.count, upto);
  }
  at = __shfl_sync(kAllLanes, at, 31) + upto - own;
#pragma unroll
  for (int step = 0; step < kTileSteps; ++step) {
    if ((marked >> (8 * step) & 0xffu) != 0) {
      const auto id = static_cast<int32_t>(StepId(first, step));
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        if ((marked >> (8 * step + i) & 1u) != 0) {
          if (at < CandidateBuffer::kCapacity) {
            buffer.key[at] = RankKey(tile.At(step, i), id + i);
          }
          ++at;
        }
      }
    }
  }
}

// Puts the tile's values from the threshold on into the buffer, which holds `held` keys and at most
// kBufferKept afterwards.
template <typename Tile>
__device__ void Offer(CandidateBuffer& buffer, const Tile& tile, int64_t first, int64_t vocabulary, int32_t k,
                      KeyBits bits, float* threshold, int32_t* held) {
  const uint32_t reaching = Reaching(tile, 0, kTileSteps, first, vocabulary, *threshold);
  Push(buffer, tile, reaching, first);
  __syncthreads();
  const int32_t count = buffer.count;
  __syncthreads();
  if (count <= kBufferKept) {
    *held = count;
    return;
  }
  if (count <= CandidateBuffer::kCapacity) {
    *threshold = Reduce(buffer, count, k, bits);
    *held = buffer.count;
    return;
  }
  // Too many for the buffer (many ties, or values that rise with the id): once more, step by step.
  if (threadIdx.x == 0) {
    buffer.count = *held;
  }
  __syncthreads();
#pragma unroll 1
  for (int step = 0; step < kTileSteps; ++step) {
    const uint32_t some = reaching & Reaching(tile, step, step + 1, first, vocabulary, *threshold);
    Push(buffer, tile, some, first);
    __syncthreads();
    *held = buffer.count;
    __syncthreads();
    if (*held > kBufferKept) {
      *threshold = Reduce(buffer, *held, k, bits);
      *held = buffer.count;
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
