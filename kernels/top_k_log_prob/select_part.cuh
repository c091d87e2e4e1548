#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/top_k_log_prob/candidate_buffer.cuh"
#include "kernels/top_k_log_prob/logits_tile.cuh"
#include "kernels/top_k_log_prob/plain_rows.cuh"
#include "kernels/top_k_log_prob/top_k_log_prob_cuda.h"

namespace arborist::kernels::cuda {

// One block goes through its part of a row with noise, whose candidates are found while it is read: which ids
// they are cannot be said afterwards without working out the noise of all again.

// A part that holds more candidates than this at its end hands on only the best.
inline constexpr int32_t kWorthReducing = 192;
static_assert(kBufferKept == kTopKHandedOn && kBufferPush >= kTopKTile);
static_assert(kTopKRound == kBufferWarps * kTopKTile);

struct Part {
  int32_t begin;
  int32_t end;  // begin + a multiple of kTopKRound; may lie beyond the vocabulary
};

inline constexpr auto kTileIds = static_cast<int32_t>(kTopKTile);
inline constexpr auto kRoundIds = static_cast<int32_t>(kTopKRound);

__device__ inline int32_t WarpOffset() { return static_cast<int32_t>(threadIdx.x / 32) * kTileIds; }

// A value that at least k of a round's ids reach, from one value of each lane: the least of the warps' q-th
// largest, q times the warps at least k. Warps that are not full of ids stay out. -infinity where too few are
// full; then few enough ids are there for the buffer, or none.
__device__ inline float FirstThreshold(CandidateBuffer& buffer, float sample, int32_t k, int32_t ids) {
  const auto warp = static_cast<int32_t>(threadIdx.x / 32);
  const int32_t full = min(ids / kTileIds, kBufferWarps);
  const int32_t each = full > 0 ? (k + full - 1) / full : 33;
  if (warp < full && each <= 32) {
    uint32_t key = OrderKey(sample);
    uint32_t largest = 0;
    for (int32_t i = 0; i < each; ++i) {
      largest = __reduce_max_sync(kAllLanes, key);
      const int first = __ffs(static_cast<int>(__ballot_sync(kAllLanes, key == largest))) - 1;
      key = static_cast<int>(threadIdx.x % 32) == first ? 0 : key;
    }
    if (threadIdx.x % 32 == 0) {
      buffer.warp_value[warp] = FloatOfKey(largest);
    }
  }
  __syncthreads();
  if (each > 32) {
    return MinusInfinity();
  }
  float threshold = buffer.warp_value[0];
  for (int i = 1; i < full; ++i) {
    threshold = fminf(threshold, buffer.warp_value[i]);
  }
  return threshold;
}

struct Selected {
  float threshold;
  int32_t held;
};

// The rounds in [from, stop) again, for a buffer that could not take what reached the threshold (many ties,
// or values that rise with the id): a warp after the other, and the threshold rises in between.
template <typename Tile, typename Element, typename RowWork>
__device__ __noinline__ Selected SelectCarefully(LogitsRow<Element> logits, RowWork work, int32_t k,
                                                 int32_t from, int32_t stop, Selected selected,
                                                 CandidateBuffer& buffer, TopKTileSum* sums) {
  if (threadIdx.x == 0) {
    buffer.count = selected.held;
  }
  __syncthreads();
  for (int32_t first = from; first < stop; first += kTileIds) {
    if (first / kTileIds % kBufferWarps == static_cast<int32_t>(threadIdx.x / 32)) {
      Tile tile;
      tile.Load(logits, first);
      work.Take(tile, first, selected.threshold, buffer, sums + first / kTileIds);
    }
    __syncthreads();
    selected.held = buffer.count;
    __syncthreads();
    if (selected.held > kBufferKept) {
      selected.threshold = Reduce(buffer, selected.held, k, RowWork::kBits);
      selected.held = buffer.count;
    }
  }
  return selected;
}

// Appends the part's candidates to the buffer and writes the sum of each of its tiles; `next` holds this
// warp's first tile. Returns how many candidates are held.
//
// Warps go their own ways through 1, 3, 9, ... rounds with the threshold that the rounds before have left;
// then the block looks what has come together.
template <typename Tile, typename Element, typename RowWork>
__device__ int32_t SelectPart(const LogitsRow<Element>& logits, const RowWork& work, int32_t k, Part part,
                              Tile& next, CandidateBuffer& buffer, TopKTileSum* sums) {
  // The next tile's loads are under way while one is worked on; of fp32 there is no room for two.
  constexpr bool kAhead = sizeof(Tile) <= 64;
  const int32_t end = min(part.end, logits.vocabulary);
  if (threadIdx.x == 0) {
    buffer.count = 0;
  }
  int32_t first = part.begin + WarpOffset();
  const float sample = first < end ? work.Sample(next, first) : MinusInfinity();
  Selected selected = {FirstThreshold(buffer, sample, k, end - part.begin), 0};
  int32_t rounds = 1;
  for (int32_t from = part.begin; from < end;) {
    const int32_t stop = min(from + rounds * kRoundIds, end);
    for (; first < stop; first += kRoundIds) {
      const Tile tile = next;
      if (kAhead && first + kRoundIds < end) {
        next.Load(logits, first + kRoundIds);
      }
      work.Take(tile, first, selected.threshold, buffer, sums + first / kTileIds);
      if (!kAhead && first + kRoundIds < end) {
        next.Load(logits, first + kRoundIds);
      }
    }
    __syncthreads();
    const int32_t count = buffer.count;
    __syncthreads();
    if (count > CandidateBuffer::kCapacity) {
      selected = SelectCarefully<Tile>(logits, work, k, from, stop, selected, buffer, sums);
    } else {
      selected.held = count;
    }
    if (selected.held > (stop < end ? k + k / 4 : kWorthReducing)) {
      selected.threshold = Reduce(buffer, selected.held, k, RowWork::kBits);
      selected.held = buffer.count;
    }
    from = stop;
    rounds *= 3;
  }
  return selected.held;
}

__device__ inline void HandOn(const CandidateBuffer& buffer, int32_t held, TopKPartResult* result) {
  for (auto i = static_cast<int32_t>(threadIdx.x); i < held; i += kBufferThreads) {
    result->candidate[i] = buffer.key[i];
  }
  if (threadIdx.x == 0) {
    result->candidates = held;
  }
}

}  // namespace arborist::kernels::cuda
