#pragma once

#include <cuda_runtime.h>

#include <climits>
#include <cstdint>

#include "kernels/exact_math/exact_scalar.h"
#include "kernels/sample_target/sample_launch.cuh"
#include "kernels/vocabulary_row/exp_sum.cuh"

namespace arborist::kernels::cuda {

inline constexpr int kReadWarps = kReadThreads / 32;
inline constexpr int kQuads = kSampleChunk / (4 * kReadThreads);  // loads of four ids a thread

// Gumbel noise within 1e-5: two hardware logarithms.
__device__ inline float FastGumbel(uint32_t word) {
  const float u = fminf((static_cast<float>(word) + 0.5f) * 0x1p-32f, 1.0f - 0x1p-24f);
  const float series = u * fmaf(u, fmaf(u, fmaf(u, 0.25f, 1.0f / 3), 0.5f), 1.0f);
  const float exponential = u < 0x1p-5f ? series : -__logf(1.0f - u);
  return -__logf(exponential);
}
inline constexpr float kMargin = 1e-3f;  // times 100 what FastGumbel and the scaling may be off
// From here on a reciprocal replaces the division.
inline constexpr float kLeastReciprocal = 1e-30f;

// A chunk in registers: quad i of thread t starts at id first + 4 (256 i + t).
struct Chunk {
  float value[kQuads][4];  // -infinity beyond the vocabulary
  int64_t first;
  int64_t vocabulary;

  __device__ int64_t Id(int quad, int i) const {
    return first + 4 * (quad * kReadThreads + static_cast<int64_t>(threadIdx.x)) + i;
  }
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
        visit(value[quad][i], Id(quad, i));
      }
    }
  }
};

struct ReadMemory {
  uint32_t key[kReadWarps];
  float sum[kReadWarps];
  int32_t max_id;
  int32_t contenders;
};

__device__ inline float BlockMaxFloat(ReadMemory& memory, float value) {
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

// The ids that may have the largest (logit - row's max) / T + noise, should the row's largest be in this
// chunk. Seen from the chunk's own max every id's value shifts by the same amount, up to rounding: an id that
// can win lies within 27 of it, where a float is good to 2e-6.
__device__ inline void FindContenders(const Chunk& chunk, const SamplingParams& params, int32_t position,
                                      float max, ReadMemory& memory, SampleChunkResult* result) {
  float noisy[kQuads][4];
  float best = MinusInfinity();
  const bool divide = params.temperature < kLeastReciprocal;
  const float reciprocal = 1.0f / params.temperature;
#pragma unroll
  for (int quad = 0; quad < kQuads; ++quad) {
    uint32_t word[4] = {static_cast<uint32_t>(chunk.Id(quad, 0)) / 4, static_cast<uint32_t>(position),
                        params.sample_index, 0};
    PhiloxInline(word, static_cast<uint32_t>(params.seed), static_cast<uint32_t>(params.seed >> 32));
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float below = chunk.value[quad][i] - max;
      const float scaled = divide ? below / params.temperature : below * reciprocal;
      noisy[quad][i] = scaled + FastGumbel(word[i]);
      best = fmaxf(best, noisy[quad][i]);
    }
  }
  best = BlockMaxFloat(memory, best);
#pragma unroll
  for (int quad = 0; quad < kQuads; ++quad) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (noisy[quad][i] >= best - kMargin) {
        const int32_t at = atomicAdd(&memory.contenders, 1);
        if (at < kSampleContenders) {
          result->contender[at] = static_cast<int32_t>(chunk.Id(quad, i));
        }
      }
    }
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    result->contenders = memory.contenders;
  }
}

// Each chunk of a row clears its share of what the next launch adds to.
__device__ inline void ClearCut(SampleRowCut* cut, int32_t chunk, int32_t chunks) {
  for (int32_t i = chunk * kReadThreads + static_cast<int32_t>(threadIdx.x); i < kSampleBins;
       i += chunks * kReadThreads) {
    cut->mass[i] = 0;
    cut->count[i] = 0;
  }
  if (chunk == 0 && threadIdx.x == 0) {
    cut->parts_done = 0;
    cut->listed = 0;
  }
}

// One block a chunk: everything that one read of the logits can tell.
static __global__ void __launch_bounds__(kReadThreads) ReadChunks(SampleLaunch launch) {
  __shared__ ReadMemory memory;
  const SampleTargetArgs& args = launch.args;
  const int64_t row = blockIdx.x / static_cast<unsigned>(launch.chunks);
  const SamplingParams* params = ParamsOf(args, row);
  if (params == nullptr) {
    return;
  }
  SampleChunkResult* result = launch.results + blockIdx.x;
  if (IsTruncated(params, args.logits.columns)) {
    ClearCut(launch.cuts + row, static_cast<int32_t>(blockIdx.x % static_cast<unsigned>(launch.chunks)),
             launch.chunks);
  }
  Chunk chunk;
  chunk.first = (blockIdx.x % static_cast<unsigned>(launch.chunks)) * kSampleChunk;
  chunk.vocabulary = args.logits.columns;
  chunk.Load(args.logits.row(row));
  if (threadIdx.x == 0) {
    memory.max_id = INT_MAX;
    memory.contenders = 0;
  }
  float own = MinusInfinity();
  float probe = 0;
  chunk.ForEach([&](float value, int64_t id) {
    own = fmaxf(own, value);
    probe += id < chunk.vocabulary ? value * 0.0f : 0.0f;
  });
  const float max = BlockMaxFloat(memory, own);
  int32_t max_id = INT_MAX;
  float sum = 0;
  const bool with_sum = args.log_prob.size > 0;
  chunk.ForEach([&](float value, int64_t id) {
    max_id = value == max ? min(max_id, static_cast<int32_t>(id)) : max_id;
    sum += with_sum ? FastExp2((value - max) * kLog2OfE) : 0.0f;
  });
  max_id = __reduce_min_sync(kAllLanes, max_id);
  for (int offset = 16; offset > 0; offset /= 2) {
    sum += __shfl_down_sync(kAllLanes, sum, static_cast<unsigned>(offset));
  }
  if (threadIdx.x % 32 == 0) {
    atomicMin(&memory.max_id, max_id);
    memory.sum[threadIdx.x / 32] = sum;
  }
  const bool finite = __syncthreads_and(probe == 0.0f) != 0;
  if (threadIdx.x == 0) {
    for (int warp = 1; warp < kReadWarps; ++warp) {
      sum += memory.sum[warp];
    }
    result->max = max;
    result->max_id = memory.max_id;
    result->sum_exp = sum;
    result->finite = finite ? 1 : 0;
  }
  if (finite && params->temperature > 0 && !Truncates(*params, chunk.vocabulary)) {
    FindContenders(chunk, *params, args.position[row], max, memory, result);
  }
}

}  // namespace arborist::kernels::cuda
