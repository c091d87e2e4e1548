#pragma once

#include <cuda_runtime.h>

#include <cfloat>
#include <climits>
#include <cstdint>

#include "kernels/exact_math/exact_scalar.h"
#include "kernels/kernel_overlap/kernel_overlap.cuh"
#include "kernels/sample_target/chunk_sum.cuh"
#include "kernels/sample_target/sample_launch.cuh"
#include "kernels/vocabulary_row/exp_sum.cuh"
#include "kernels/vocabulary_row/fast_gumbel.cuh"

namespace arborist::kernels::cuda {

// How far from the chunk's best, as a factor of the exponential variate, an id may be and still win: 100
// times what the device's own exp2 and log and the scaling may be off.
inline constexpr float kMargin = 1.002f;
// -log(1 - u) is at least u, and at most this many times u for the largest u.
inline constexpr float kMostOfU = 18.0f;
// Below, the reciprocal is no float.
inline constexpr float kLeastTemperature = 1e-37f;

struct ReadMemory : ChunkMemory {
  int32_t max_id;
  uint32_t least;  // of positive floats
  int32_t contenders;
};

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
  const float own = MaxOfThread(chunk);
  const float probe = ProbeOfThread(chunk);
  const float max = BlockMaxFloat(memory, own);
  int32_t max_id = INT_MAX;
  if (own == max) {
    chunk.ForEach([&](float value, int32_t offset) {
      max_id = value == max ? min(max_id, static_cast<int32_t>(chunk.first) + offset) : max_id;
    });
  }
  float sum = 0;
  if (args.log_prob.size > 0) {
    sum = SumExpOfThread(chunk, max);
  }
  max_id = __reduce_min_sync(kAllLanes, max_id);
  sum = SumOfLanes(sum);
  if (threadIdx.x % 32 == 0) {
    atomicMin(&memory.max_id, max_id);
    memory.sum[threadIdx.x / 32] = sum;
  }
  const bool finite = __syncthreads_and(probe == 0.0f) != 0;
  if (threadIdx.x == 0) {
    result->max = max;
    result->max_id = memory.max_id;
    result->sum_exp = SumOfWarps(memory, sum);
    result->finite = finite ? 1 : 0;
  }
  if (finite && params->temperature > 0 && !Truncates(*params, chunk.vocabulary)) {
    FindContenders(chunk, *params, args.position[row], max, memory, result);
  }
}

}  // namespace arborist::kernels::cuda
