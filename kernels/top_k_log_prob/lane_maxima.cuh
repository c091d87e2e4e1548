#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/top_k_log_prob/candidate_buffer.cuh"
#include "kernels/top_k_log_prob/logits_tile.cuh"

namespace arborist::kernels::cuda {

// The candidates of a row. While it is read, nothing is kept but the largest of each lane's first and last 16
// ids in a tile; when all of it has been read, these say which few can hold candidates, and those are read
// again.

// The upper half of -FLT_MAX's order key: lanes beyond the vocabulary stay below.
inline constexpr uint32_t kLeastHalf = 0x0080;

// Steps of a tile that one of the maxima is of.
inline constexpr int32_t kStepsOfMaximum = 2;
static_assert(kStepsOfMaximum * 2 == kTileSteps && kTopKTileMaxima == 64);

struct LaneMaxima {
  const uint16_t* half;  // [count] upper halves of the order keys; 16-byte aligned
  int32_t count;         // 64 for each tile: lane 0's two, lane 1's, ...
};

// The largest of the halves that this thread looks through, all threads together through all.
__device__ inline uint32_t LargestOfThread(const LaneMaxima& maxima) {
  const auto t = static_cast<int32_t>(threadIdx.x);
  if (maxima.count <= 8 * kBufferThreads) {
    uint32_t half = 0;
    for (int32_t i = t; i < maxima.count; i += kBufferThreads) {
      half = max(half, uint32_t{maxima.half[i]});
    }
    return half;
  }
  const auto* eight = reinterpret_cast<const uint4*>(maxima.half);
  uint32_t pair = 0;
#pragma unroll 4
  for (int32_t i = t; i < maxima.count / 8; i += kBufferThreads) {
    const uint4 own = eight[i];
    pair = __vmaxu2(pair, __vmaxu2(__vmaxu2(own.x, own.y), __vmaxu2(own.z, own.w)));
  }
  return max(pair & 0xffffu, pair >> 16);
}

// An upper half that at least k ids reach, and few more: the k-th largest of the threads' largest. kLeastHalf
// where fewer threads have one.
__device__ inline uint32_t ThresholdOfMaxima(const LaneMaxima& maxima, int32_t k, CandidateBuffer& buffer) {
  auto* const largest = reinterpret_cast<uint32_t*>(buffer.key);
  largest[threadIdx.x] = LargestOfThread(maxima);
  if (threadIdx.x == 0) {
    buffer.count = 0;
    buffer.kept_count = 0;
  }
  __syncthreads();
  if (threadIdx.x < 32) {
    uint32_t half[kFewKeys / 32];
#pragma unroll
    for (int j = 0; j < kFewKeys / 32; ++j) {
      half[j] = largest[32 * j + static_cast<int>(threadIdx.x)];
    }
    const uint32_t bound = max(KthOfWarp(half, k, 0), kLeastHalf);
    if (threadIdx.x == 0) {
      buffer.bound = bound;
    }
  }
  __syncthreads();
  return buffer.bound;
}
static_assert(kFewKeys == kBufferThreads);

// Half of the ids that one of the maxima is of, read again.
template <typename Element>
class LaneStep {
 public:
  __device__ LaneStep(const LogitsRow<Element>& logits, int32_t index, int32_t step) {
    constexpr auto kOfTile = static_cast<int32_t>(kTopKTileMaxima);
    const int32_t first = index / kOfTile * static_cast<int32_t>(kTopKTile);
    id_ = first + (index % 2 * kStepsOfMaximum + step) * kStepIds + index % kOfTile / 2 * 8;
    logits.LoadEight(first, id_, value_);
  }
  // Appends what reaches `least`. Any thread at any time between two barriers; once.
  template <typename RowWork>
  __device__ void Append(const RowWork& work, float least, CandidateBuffer& buffer) {
    const unsigned has = work.Reaching(id_, least, value_);
    if (has == 0) {
      return;
    }
    int32_t at = atomicAdd(&buffer.count, __popc(has));
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      if ((has >> i & 1u) != 0) {
        if (at < CandidateBuffer::kCapacity) {
          buffer.key[at] = RankKey(value_[i], id_ + i);
        }
        ++at;
      }
    }
  }

 private:
  int32_t id_;
  float value_[8];
};

// The upper half that one of the maxima has if one of its ids reaches `least`.
__device__ inline uint32_t HalfOf(float least) { return OrderKey(least) >> 16; }

// For rows in which so many ids tie that they do not fit: two tiles after the other, and the threshold rises
// in between.
template <typename Element, typename RowWork>
__device__ __noinline__ int32_t CandidatesCarefully(const LogitsRow<Element>& logits, const RowWork& work,
                                                    const LaneMaxima& maxima, int32_t k, float least,
                                                    CandidateBuffer& buffer) {
  constexpr int32_t kAtOnce = kBufferThreads / kStepsOfMaximum;
  static_assert(kBufferThreads * 8 <= kBufferPush && kAtOnce % kTopKTileMaxima == 0);
  if (threadIdx.x == 0) {
    buffer.count = 0;
  }
  __syncthreads();
  for (int32_t first = 0; first < maxima.count; first += kAtOnce) {
    const int32_t index = first + static_cast<int32_t>(threadIdx.x) / kStepsOfMaximum;
    if (index < maxima.count && maxima.half[index] >= HalfOf(least)) {
      LaneStep(logits, index, static_cast<int32_t>(threadIdx.x) % kStepsOfMaximum)
          .Append(work, least, buffer);
    }
    __syncthreads();
    const int32_t held = buffer.count;
    __syncthreads();  // the next tiles' ids are counted on
    if (held > kBufferKept) {
      least = Reduce(buffer, held, k, RowWork::kBits);
    }
  }
  return buffer.count;
}

// Brings the row's k best into the buffer, and perhaps some more; returns how many. All threads call it.
template <typename Element, typename RowWork>
__device__ __noinline__ int32_t CandidatesOfMaxima(const LogitsRow<Element>& logits, const RowWork& work,
                                                   const LaneMaxima& maxima, int32_t k,
                                                   CandidateBuffer& buffer) {
  const float least = work.Least(ThresholdOfMaxima(maxima, k, buffer));
  const uint32_t bound = HalfOf(least);
  // Those that may reach it.
  auto* const listed = reinterpret_cast<uint16_t*>(buffer.kept);
  constexpr auto kListed = static_cast<int32_t>(sizeof(buffer.kept) / sizeof(uint16_t));
  const auto* eight = reinterpret_cast<const uint4*>(maxima.half);
#pragma unroll 4
  for (auto i = static_cast<int32_t>(threadIdx.x); i < maxima.count / 8; i += kBufferThreads) {
    const uint4 own = eight[i];
    const uint32_t word[4] = {own.x, own.y, own.z, own.w};
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      const uint32_t half = j % 2 == 0 ? word[j / 2] & 0xffffu : word[j / 2] >> 16;
      if (half >= bound) {
        const int32_t at = atomicAdd(&buffer.kept_count, 1);
        if (at < kListed) {
          listed[at] = static_cast<uint16_t>(8 * i + j);
        }
      }
    }
  }
  __syncthreads();
  const int32_t count = buffer.kept_count;
  if (count <= kListed) {
    const int32_t steps = kStepsOfMaximum * count;
    for (auto i = static_cast<int32_t>(threadIdx.x); i < steps; i += 2 * kBufferThreads) {
      LaneStep one(logits, listed[i / kStepsOfMaximum], i % kStepsOfMaximum);
      const int32_t j = min(i + kBufferThreads, steps - 1);
      LaneStep other(logits, listed[j / kStepsOfMaximum], j % kStepsOfMaximum);  // both are under way at once
      one.Append(work, least, buffer);
      if (i + kBufferThreads < steps) {
        other.Append(work, least, buffer);
      }
    }
    __syncthreads();
    if (buffer.count <= CandidateBuffer::kCapacity) {
      return buffer.count;
    }
  }
  __syncthreads();
  return CandidatesCarefully(logits, work, maxima, k, least, buffer);
}

}  // namespace arborist::kernels::cuda
