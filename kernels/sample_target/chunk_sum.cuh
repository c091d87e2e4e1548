#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/exact_math/exact_scalar.h"
#include "kernels/sample_target/sample_target_cuda.h"
#include "kernels/vocabulary_row/exp_sum.cuh"
#include "kernels/vocabulary_row/order_key.h"

// The sum of log_prob in the order that sample_target.h promises: chunks of a row in registers, their maxima
// and sums, and the join of the chunks. For every kernel that has to give the same bits.
namespace arborist::kernels::cuda {

inline constexpr int kReadThreads = 256;
inline constexpr unsigned kAllLanes = 0xffffffffu;
inline constexpr int kReadWarps = kReadThreads / 32;
inline constexpr int kQuads = kSampleChunk / (4 * kReadThreads);  // loads of four ids a thread

__device__ inline float MinusInfinity() { return __uint_as_float(0xff800000u); }

// A chunk in registers: quad i of thread t starts at id first + 4 (256 i + t).
struct Chunk {
  float value[kQuads][4];  // -infinity beyond the vocabulary
  int64_t first;
  int64_t vocabulary;

  __device__ int32_t Offset(int quad, int i) const {
    return 4 * (quad * kReadThreads + static_cast<int32_t>(threadIdx.x)) + i;
  }
  __device__ int64_t Id(int quad, int i) const { return first + Offset(quad, i); }
  __device__ void Load(const float* row) {
    const bool aligned = reinterpret_cast<uintptr_t>(row) % 16 == 0;
#pragma unroll
    for (int quad = 0; quad < kQuads; ++quad) {
      const int64_t id = Id(quad, 0);
      if (aligned && id + 4 <= vocabulary) {
        const float4 loaded = *reinterpret_cast<const float4*>(row + id);
        value[quad][0] = loaded.x, value[quad][1] = loaded.y;
        value[quad][2] = loaded.z, value[quad][3] = loaded.w;
      } else {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          value[quad][i] = id + i < vocabulary ? row[id + i] : MinusInfinity();
        }
      }
    }
  }
  template <typename Visit>
  __device__ void ForEach(const Visit& visit) const {
#pragma unroll
    for (int quad = 0; quad < kQuads; ++quad) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        visit(value[quad][i], Offset(quad, i));
      }
    }
  }
};

struct ChunkMemory {
  uint32_t key[kReadWarps];
  float sum[kReadWarps];
};

__device__ inline float BlockMaxFloat(ChunkMemory& memory, float value) {
  const uint32_t key = __reduce_max_sync(kAllLanes, OrderKey(value));
  __syncthreads();
  if (threadIdx.x % 32 == 0) {
    memory.key[threadIdx.x / 32] = key;
  }
  __syncthreads();
  uint32_t largest = memory.key[0];
  for (int warp = 1; warp < kReadWarps; ++warp) {
    largest = max(largest, memory.key[warp]);
  }
  return FloatOfKey(largest);
}

// The largest of the thread's own values.
__device__ inline float MaxOfThread(const Chunk& chunk) {
  float own = MinusInfinity();
  chunk.ForEach([&](float value, int32_t) { own = fmaxf(own, value); });
  return own;
}

// 0 where the thread's own values are finite; those beyond the vocabulary count as finite.
__device__ inline float ProbeOfThread(const Chunk& chunk) {
  float probe = 0;
  const auto left = static_cast<int32_t>(min(chunk.vocabulary - chunk.first, kSampleChunk));
  if (left == kSampleChunk) {
    chunk.ForEach([&](float value, int32_t) { probe = fmaf(value, 0.0f, probe); });
  } else {
    chunk.ForEach([&](float value, int32_t offset) { probe += offset < left ? value * 0.0f : 0.0f; });
  }
  return probe;
}

__device__ inline float SumExpOfThread(const Chunk& chunk, float max) {
  float sum = 0;
  chunk.ForEach([&](float value, int32_t) { sum += FastExp2((value - max) * kLog2OfE); });
  return sum;
}

// In lane 0.
__device__ inline float SumOfLanes(float sum) {
  for (int offset = 16; offset > 0; offset /= 2) {
    sum += __shfl_down_sync(kAllLanes, sum, static_cast<unsigned>(offset));
  }
  return sum;
}

// From the first warp's sum and what the others left in memory.sum.
__device__ inline float SumOfWarps(const ChunkMemory& memory, float sum) {
  for (int warp = 1; warp < kReadWarps; ++warp) {
    sum += memory.sum[warp];
  }
  return sum;
}

// log of the sum of exp(logit - max) over the row; in thread 0. Results have a max and a sum_exp; `sums` is
// shared memory for one float a chunk.
template <typename Result>
__device__ float LogSum(float* sums, float max, const Result* results, int32_t chunks) {
  __syncthreads();
  for (auto i = static_cast<int32_t>(threadIdx.x); i < chunks; i += static_cast<int32_t>(blockDim.x)) {
    sums[i] = Rescaled({results[i].max, results[i].sum_exp}, max, kLog2OfE);
  }
  __syncthreads();
  if (threadIdx.x != 0) {
    return 0;
  }
  float sum = 0;
  for (int32_t i = 0; i < chunks; ++i) {
    sum += sums[i];
  }
  return LogOfNormal(sum);
}

}  // namespace arborist::kernels::cuda
