#pragma once

#include <cuda_runtime.h>

#include <cfloat>
#include <climits>
#include <cstdint>

#include "kernels/exact_math/exact_scalar.h"
#include "kernels/kernel_overlap/kernel_overlap.cuh"
#include "kernels/sample_target/sample_launch.cuh"
#include "kernels/vocabulary_row/exp_sum.cuh"
#include "kernels/vocabulary_row/fast_gumbel.cuh"

namespace arborist::kernels::cuda {

inline constexpr int kReadWarps = kReadThreads / 32;
inline constexpr int kQuads = kSampleChunk / (4 * kReadThreads);  // loads of four ids a thread

// How far from the chunk's best, as a factor of the exponential variate, an id may be and still win: 100
// times what the device's own exp2 and log and the scaling may be off.
inline constexpr float kMargin = 1.002f;
// -log(1 - u) is at least u, and at most this many times u for the largest u.
inline constexpr float kMostOfU = 18.0f;
// Below, the reciprocal is no float.
inline constexpr float kLeastTemperature = 1e-37f;

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

struct ReadMemory {
  uint32_t key[kReadWarps];
  float sum[kReadWarps];
  int32_t max_id;
  uint32_t least;  // of positive floats
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
//
// With E = -log(1 - u) the noise is -log(E), so the largest value has the least E / exp((logit - max) / T).
// u in E's place bounds that from below without a logarithm; only ids near the least such bound get theirs.
__device__ inline void FindContenders(const Chunk& chunk, const SamplingParams& params, int32_t position,
                                      float max, ReadMemory& memory, SampleChunkResult* result) {
  float u[kQuads][4];
  float bound[kQuads][4];
  float least = FLT_MAX;
  if (params.temperature < kLeastTemperature) {
    if (threadIdx.x == 0) {
      result->contenders = kSampleContenders + 1;  // the last launch reads the whole row
    }
    return;
  }
  const float scale = -kLog2OfE / params.temperature;
#pragma unroll
  for (int quad = 0; quad < kQuads; ++quad) {
    uint32_t word[4] = {static_cast<uint32_t>(chunk.Id(quad, 0)) / 4, static_cast<uint32_t>(position),
                        params.sample_index, 0};
    PhiloxInline(word, static_cast<uint32_t>(params.seed), static_cast<uint32_t>(params.seed >> 32));
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      u[quad][i] = UniformOfWord(word[i]);
      bound[quad][i] = u[quad][i] * FastExp2((chunk.value[quad][i] - max) * scale);
      least = fminf(least, bound[quad][i]);
    }
  }
  const float own_least = least;
  const uint32_t least_bits = __reduce_min_sync(kAllLanes, __float_as_uint(least));
  if (threadIdx.x % 32 == 0) {
    memory.key[threadIdx.x / 32] = least_bits;
  }
  __syncthreads();
  for (int warp = 0; warp < kReadWarps; ++warp) {
    least = fminf(least, __uint_as_float(memory.key[warp]));
  }
  const auto for_each_near = [&](const auto& visit) {
    if (own_least > least * kMostOfU) {
      return;
    }
#pragma unroll
    for (int quad = 0; quad < kQuads; ++quad) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        if (bound[quad][i] <= least * kMostOfU) {
          visit(bound[quad][i] / u[quad][i] * ExponentialOfUniform(u[quad][i]),
                static_cast<int32_t>(chunk.Id(quad, i)));
        }
      }
    }
  };
  for_each_near([&](float value, int32_t) { atomicMin(&memory.least, __float_as_uint(value)); });
  __syncthreads();
  const float best = __uint_as_float(memory.least);
  for_each_near([&](float value, int32_t id) {
    if (value <= best * kMargin) {
      const int32_t at = atomicAdd(&memory.contenders, 1);
      if (at < kSampleContenders) {
        result->contender[at] = id;
      }
    }
  });
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
  WaitForKernelBefore();
  LetNextKernelStart();  // from here on all inputs are there: the next launches read them before they wait
  const SampleTargetArgs& args = launch.args;
  const int64_t row = blockIdx.x / static_cast<unsigned>(launch.chunks);
  Chunk chunk;
  chunk.first = (blockIdx.x % static_cast<unsigned>(launch.chunks)) * kSampleChunk;
  chunk.vocabulary = args.logits.columns;
  chunk.Load(args.logits.row(row));  // under way while the row's parameters are read
  const SamplingParams* params = ParamsOf(args, row);
  if (params == nullptr) {
    return;
  }
  SampleChunkResult* result = launch.results + blockIdx.x;
  if (IsTruncated(params, args.logits.columns)) {
    ClearCut(launch.cuts + row, static_cast<int32_t>(blockIdx.x % static_cast<unsigned>(launch.chunks)),
             launch.chunks);
  }
  if (threadIdx.x == 0) {
    memory.max_id = INT_MAX;
    memory.contenders = 0;
    memory.least = __float_as_uint(FLT_MAX);
  }
  float own = MinusInfinity();
  float probe = 0;
  chunk.ForEach([&](float value, int32_t) { own = fmaxf(own, value); });
  const auto left = static_cast<int32_t>(min(chunk.vocabulary - chunk.first, kSampleChunk));
  if (left == kSampleChunk) {
    chunk.ForEach([&](float value, int32_t) { probe = fmaf(value, 0.0f, probe); });
  } else {
    chunk.ForEach([&](float value, int32_t offset) { probe += offset < left ? value * 0.0f : 0.0f; });
  }
  const float max = BlockMaxFloat(memory, own);
  int32_t max_id = INT_MAX;
  if (own == max) {
    chunk.ForEach([&](float value, int32_t offset) {
      max_id = value == max ? min(max_id, static_cast<int32_t>(chunk.first) + offset) : max_id;
    });
  }
  float sum = 0;
  if (args.log_prob.size > 0) {
    chunk.ForEach([&](float value, int32_t) { sum += FastExp2((value - max) * kLog2OfE); });
  }
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
