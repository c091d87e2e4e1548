#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/vocabulary_row/order_key.h"

namespace arborist::kernels::cuda {

// A block's candidates in shared memory, unordered: every key pushed that may still be among the k best.
inline constexpr int kBufferThreads = 256;
inline constexpr int kBufferWarps = kBufferThreads / 32;
// Pushes that always fit after Reduce or while at most kBufferKept stand here.
inline constexpr int kBufferPush = 2048;
inline constexpr int kBufferKept = 384;

struct CandidateBuffer {
  uint64_t key[kBufferKept + kBufferPush];
  uint64_t kept[64];
  int32_t count;  // may exceed the array: what did not fit was not stored
  int32_t kept_count;
  int32_t warp_count[2][kBufferWarps];
  float warp_value[kBufferWarps];

  static constexpr int kCapacity = kBufferKept + kBufferPush;

  __device__ void Push(uint64_t rank_key) {
    const int32_t at = atomicAdd(&count, 1);
    if (at < kCapacity) {
      key[at] = rank_key;
    }
  }
};

// The sum over the block; `parity` alternates between calls that follow each other.
__device__ inline int32_t BlockSum(CandidateBuffer& buffer, int32_t value, int parity) {
  value = __reduce_add_sync(0xffffffffu, value);
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

// Leaves exactly the k largest of the buffer's `count` > k keys (1 <= k <= 64), which differ. All threads
// call it; returns the smallest value that a later, higher id needs to be among the k best.
__device__ inline float Reduce(CandidateBuffer& buffer, int32_t count, int32_t k) {
  // Bit by bit the largest bound that k keys reach; done as soon as no other key does.
  uint64_t bound = 0;
  for (int bit = 63; bit >= 0; --bit) {
    const uint64_t tried = bound | uint64_t{1} << bit;
    int32_t reach = 0;
    for (int32_t i = static_cast<int32_t>(threadIdx.x); i < count; i += kBufferThreads) {
      reach += buffer.key[i] >= tried ? 1 : 0;
    }
    reach = BlockSum(buffer, reach, bit & 1);
    bound = reach >= k ? tried : bound;
    if (reach == k) {
      break;
    }
  }
  if (threadIdx.x == 0) {
    buffer.kept_count = 0;
  }
  __syncthreads();
  for (int32_t i = static_cast<int32_t>(threadIdx.x); i < count; i += kBufferThreads) {
    if (buffer.key[i] >= bound) {
      buffer.kept[atomicAdd(&buffer.kept_count, 1)] = buffer.key[i];
    }
  }
  __syncthreads();
  if (threadIdx.x < 64 && static_cast<int32_t>(threadIdx.x) < k) {
    buffer.key[threadIdx.x] = buffer.kept[threadIdx.x];
  }
  uint32_t least = 0xffffffffu;
  for (int32_t i = static_cast<int32_t>(threadIdx.x % 32); i < k; i += 32) {
    least = min(least, static_cast<uint32_t>(buffer.kept[i] >> 32));
  }
  least = __reduce_min_sync(0xffffffffu, least);
  if (threadIdx.x == 0) {
    buffer.count = k;
  }
  __syncthreads();
  return FloatOfKey(least + 1);
}

}  // namespace arborist::kernels::cuda
