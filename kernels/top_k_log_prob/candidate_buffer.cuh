#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/vocabulary_row/order_key.h"

namespace arborist::kernels::cuda {

// A block's candidates in shared memory, unordered: every key pushed that may still be among the k best.
inline constexpr int kBufferThreads = 256;
inline constexpr int kBufferWarps = kBufferThreads / 32;
// Pushes that always fit while at most kBufferKept stand here.
inline constexpr int kBufferPush = 2048;
inline constexpr int kBufferKept = 384;
inline constexpr unsigned kAllLanes = 0xffffffffu;

struct CandidateBuffer {
  uint64_t key[kBufferKept + kBufferPush];
  uint64_t kept[kBufferKept];
  int32_t count;  // may exceed the array: what did not fit was not stored
  int32_t kept_count;
  uint32_t bound;
  int32_t warp_count[2][kBufferWarps];
  int32_t digit_count[2][2 * kBufferWarps];

  static constexpr int kCapacity = kBufferKept + kBufferPush;
};

// The sum over the block; `parity` alternates between calls that follow each other.
__device__ inline int32_t BlockSum(CandidateBuffer& buffer, int32_t value, int parity) {
  value = __reduce_add_sync(kAllLanes, value);
  if (threadIdx.x % 32 == 0) {
    buffer.warp_count[parity][threadIdx.x / 32] = value;
  }
  __syncthreads();
  int32_t sum = 0;
  for (int warp = 0; warp < kBufferWarps; ++warp) {
    sum += buffer.warp_count[parity][warp];
  }
  return sum;
}

// Which bits of a value's key say everything: all, or for values that were bf16 the upper half.
enum class KeyBits { kAll = 0, kUpper = 16 };

// The largest upper half that k of the `count` >= k keys reach: four bits a step, each warp tries two digits.
__device__ inline uint32_t KthUpperHalf(CandidateBuffer& buffer, int32_t count, int32_t k, KeyBits bits) {
  const auto warp = threadIdx.x / 32;
  const auto lane = threadIdx.x % 32;
  uint32_t bound = 0;
#pragma unroll 1
  for (int shift = 28; shift >= static_cast<int>(bits); shift -= 4) {
    const uint32_t low = bound + ((2 * warp) << shift);
    const uint32_t high = bound + ((2 * warp + 1) << shift);
    int32_t reach_low = 0;
    int32_t reach_high = 0;
#pragma unroll 4
    for (auto i = static_cast<int32_t>(lane); i < count; i += 32) {
      const auto half = static_cast<uint32_t>(buffer.key[i] >> 32);
      reach_low += half >= low ? 1 : 0;
      reach_high += half >= high ? 1 : 0;
    }
    reach_low = __reduce_add_sync(kAllLanes, reach_low);
    reach_high = __reduce_add_sync(kAllLanes, reach_high);
    int32_t* reach = buffer.digit_count[shift / 4 % 2];
    if (lane == 0) {
      reach[2 * warp] = reach_low;
      reach[2 * warp + 1] = reach_high;
    }
    __syncthreads();
    const unsigned enough = __ballot_sync(kAllLanes, lane < 2 * kBufferWarps && reach[lane % 16] >= k);
    bound += static_cast<uint32_t>(31 - __clz(static_cast<int>(enough))) << shift;
  }
  // The lower bits of a negative bf16's key are all ones.
  return bits == KeyBits::kUpper && (bound & 0x80000000u) == 0 ? bound | 0xffffu : bound;
}

// The largest bound that k of a warp's values reach, found bit by bit down to `lowest`; 0 is no value. 0
// where there are fewer than k. Lane 0's first value is one.
template <int kEach>
__device__ inline uint32_t KthOfWarp(const uint32_t (&value)[kEach], int32_t k, int lowest) {
  // Bits that all share need no trial.
  const uint32_t any = __shfl_sync(kAllLanes, value[0], 0);
  uint32_t varying = 0;
  int32_t values = 0;
#pragma unroll
  for (int j = 0; j < kEach; ++j) {
    varying |= value[j] != 0 ? value[j] ^ any : 0;
    values += value[j] != 0 ? 1 : 0;
  }
  if (__reduce_add_sync(kAllLanes, values) < k) {
    return 0;
  }
  varying = __reduce_or_sync(kAllLanes, varying);
  const int highest = 31 - __clz(static_cast<int>(varying));  // -1: none varies
  uint32_t bound = highest < 31 ? any >> (highest + 1) << (highest + 1) : 0;
#pragma unroll 1
  for (int bit = highest; bit >= lowest; --bit) {
    const uint32_t tried = bound | 1u << bit;
    int32_t reach = 0;
#pragma unroll
    for (int j = 0; j < kEach; ++j) {
      reach += value[j] >= tried ? 1 : 0;
    }
    bound = __reduce_add_sync(kAllLanes, reach) >= k ? tried : bound;
  }
  return bound >> lowest << lowest;
}

// The same for few keys: one warp holds all of them, the others wait.
inline constexpr int kFewKeys = 256;
__device__ inline uint32_t KthUpperHalfOfFew(CandidateBuffer& buffer, int32_t count, int32_t k,
                                             KeyBits bits) {
  if (threadIdx.x < 32) {
    constexpr int kEach = kFewKeys / 32;
    uint32_t half[kEach];
#pragma unroll
    for (int j = 0; j < kEach; ++j) {
      const int32_t i = 32 * j + static_cast<int32_t>(threadIdx.x);
      half[j] = i < count ? static_cast<uint32_t>(buffer.key[i] >> 32) : 0;
    }
    const uint32_t bound = KthOfWarp(half, k, static_cast<int>(bits));
    if (threadIdx.x == 0) {
      buffer.bound = bound;
    }
  }
  __syncthreads();
  const uint32_t bound = buffer.bound;
  return bits == KeyBits::kUpper && (bound & 0x80000000u) == 0 ? bound | 0xffffu : bound;
}

// The largest whole key that k keys reach, for buffers where so many tie that the lower ids must decide.
__device__ inline uint64_t KthKey(CandidateBuffer& buffer, int32_t count, int32_t k) {
  uint64_t bound = 0;
#pragma unroll 1
  for (int bit = 63; bit >= 0; --bit) {
    const uint64_t tried = bound | uint64_t{1} << bit;
    int32_t reach = 0;
    for (auto i = static_cast<int32_t>(threadIdx.x); i < count; i += kBufferThreads) {
      reach += buffer.key[i] >= tried ? 1 : 0;
    }
    bound = BlockSum(buffer, reach, bit & 1) >= k ? tried : bound;
  }
  return bound;
}

// Keeps the k largest of the buffer's `count` >= k keys (1 <= k <= 64), which differ, and of those that tie
// with the last in value at most as many as fit. All threads call it; the new count is buffer.count. Returns
// the smallest value that a later, higher id needs to be among the k best.
__device__ __noinline__ inline float Reduce(CandidateBuffer& buffer, int32_t count, int32_t k, KeyBits bits) {
  const uint32_t half =
      count <= kFewKeys ? KthUpperHalfOfFew(buffer, count, k, bits) : KthUpperHalf(buffer, count, k, bits);
  uint64_t bound = uint64_t{half} << 32;
#pragma unroll 1
  for (int attempt = 0; attempt < 2; ++attempt) {
    if (threadIdx.x == 0) {
      buffer.kept_count = 0;
    }
    __syncthreads();
    for (auto i = static_cast<int32_t>(threadIdx.x); i < count; i += kBufferThreads) {
      if (buffer.key[i] >= bound) {
        const int32_t at = atomicAdd(&buffer.kept_count, 1);
        if (at < kBufferKept) {
          buffer.kept[at] = buffer.key[i];
        }
      }
    }
    __syncthreads();
    if (buffer.kept_count <= kBufferKept) {
      break;
    }
    bound = KthKey(buffer, count, k);  // its barriers keep kept_count until all have read it
  }
  const int32_t kept = buffer.kept_count;
  for (auto i = static_cast<int32_t>(threadIdx.x); i < kept; i += kBufferThreads) {
    buffer.key[i] = buffer.kept[i];
  }
  if (threadIdx.x == 0) {
    buffer.count = kept;
  }
  __syncthreads();
  return FloatOfKey(half + 1);
}

}  // namespace arborist::kernels::cuda
