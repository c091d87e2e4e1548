#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace arborist::kernels::cuda {

// Reductions over a whole block; all threads call them and all get the result. Integers, so any order is
// exact. Calls may follow each other: each starts with a barrier of its own.
inline constexpr int kMaxWarps = 32;
struct BlockReduceMemory {
  uint64_t warp[kMaxWarps];
};

template <typename Combine>
__device__ uint64_t BlockReduce(BlockReduceMemory& memory, uint64_t value, const Combine& combine) {
  for (int offset = 16; offset > 0; offset /= 2) {
    value = combine(value, __shfl_xor_sync(0xffffffffu, value, offset));
  }
  __syncthreads();
  if (threadIdx.x % 32 == 0) {
    memory.warp[threadIdx.x / 32] = value;
  }
  __syncthreads();
  value = memory.warp[0];
  for (unsigned warp = 1; warp < blockDim.x / 32; ++warp) {
    value = combine(value, memory.warp[warp]);
  }
  return value;
}

__device__ inline uint64_t BlockSum(BlockReduceMemory& memory, uint64_t value) {
  return BlockReduce(memory, value, [](uint64_t a, uint64_t b) { return a + b; });
}
__device__ inline uint64_t BlockMax(BlockReduceMemory& memory, uint64_t value) {
  return BlockReduce(memory, value, [](uint64_t a, uint64_t b) { return a > b ? a : b; });
}
__device__ inline uint64_t BlockAnd(BlockReduceMemory& memory, uint64_t value) {
  return BlockReduce(memory, value, [](uint64_t a, uint64_t b) { return a & b; });
}
__device__ inline uint64_t BlockOr(BlockReduceMemory& memory, uint64_t value) {
  return BlockReduce(memory, value, [](uint64_t a, uint64_t b) { return a | b; });
}

// The sum of the values of all threads before this one.
__device__ inline uint64_t BlockSumBefore(BlockReduceMemory& memory, uint64_t value) {
  uint64_t upto = value;
  for (unsigned offset = 1; offset < 32; offset *= 2) {
    const uint64_t other = __shfl_up_sync(0xffffffffu, upto, offset);
    upto += threadIdx.x % 32 >= offset ? other : 0;
  }
  __syncthreads();
  if (threadIdx.x % 32 == 31) {
    memory.warp[threadIdx.x / 32] = upto;
  }
  __syncthreads();
  uint64_t before = upto - value;
  for (unsigned warp = 0; warp < threadIdx.x / 32; ++warp) {
    before += memory.warp[warp];
  }
  return before;
}

}  // namespace arborist::kernels::cuda
