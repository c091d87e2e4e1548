#include <cuda_runtime.h>

#include <climits>
#include <cstdint>

#include "common/base/math.h"
#include "common/base/status_macros.h"
#include "common/device/cuda_status.h"
#include "kernels/exact_math/exact_scalar.h"
#include "kernels/sample_target/block_reduce.cuh"
#include "kernels/sample_target/row_cut.cuh"
#include "kernels/sample_target/sample_target.h"
#include "kernels/sample_target/sample_target_cuda.h"
#include "kernels/sample_target/sampling_rule.h"
#include "kernels/vocabulary_row/exp_sum.cuh"

namespace arborist::kernels::cuda {
namespace {

constexpr int kReadThreads = 256;
constexpr int kReadWarps = kReadThreads / 32;
constexpr int kQuads = kSampleChunk / (4 * kReadThreads);  // loads of four ids a thread
constexpr int kChooseThreads = 512;
constexpr unsigned kAllLanes = 0xffffffffu;

struct Launch {
  SampleTargetArgs args;
  SampleChunkResult* results;  // [rows, chunks]
  int32_t chunks;              // of a row
};

__device__ const SamplingParams* ParamsOf(const SampleTargetArgs& args, int64_t row) {
  const int32_t index = args.params_index[row];
  return index >= 0 && index < args.params.size ? &args.params[index] : nullptr;
}

__device__ float MinusInfinity() { return __uint_as_float(0xff800000u); }

// Gumbel noise within 1e-5: two hardware logarithms.
__device__ float FastGumbel(uint32_t word) {
  const float u = fminf((static_cast<float>(word) + 0.5f) * 0x1p-32f, 1.0f - 0x1p-24f);
  const float series = u * fmaf(u, fmaf(u, fmaf(u, 0.25f, 1.0f / 3), 0.5f), 1.0f);
  const float exponential = u < 0x1p-5f ? series : -__logf(1.0f - u);
  return -__logf(exponential);
}
constexpr float kMargin = 1e-3f;  // times 100 what FastGumbel and the scaling may be off
// From here on a reciprocal replaces the division.
constexpr float kLeastReciprocal = 1e-30f;

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

__device__ float BlockMaxFloat(ReadMemory& memory, float value) {
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
__device__ void FindContenders(const Chunk& chunk, const SamplingParams& params, int32_t position, float max,
                               ReadMemory& memory, SampleChunkResult* result) {
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

// One block a chunk: everything that one read of the logits can tell.
__global__ void __launch_bounds__(kReadThreads) ReadChunks(Launch launch) {
  __shared__ ReadMemory memory;
  const SampleTargetArgs& args = launch.args;
  const int64_t row = blockIdx.x / static_cast<unsigned>(launch.chunks);
  const SamplingParams* params = ParamsOf(args, row);
  if (params == nullptr) {
    return;
  }
  SampleChunkResult* result = launch.results + blockIdx.x;
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

struct ChooseMemory {
  CutMemory cut;
  float sum[kMaxVocabulary / kSampleChunk];
};

// What all chunks of a row say together.
struct RowPeak {
  float max;
  int32_t max_id;
  bool finite;
};

__device__ RowPeak PeakOfChunks(BlockReduceMemory& memory, const SampleChunkResult* results, int32_t chunks) {
  uint64_t best = 0;
  uint64_t finite = 1;
  for (auto i = static_cast<int32_t>(threadIdx.x); i < chunks; i += kChooseThreads) {
    const uint64_t key = RankKey(results[i].max, results[i].max_id);
    best = key > best ? key : best;
    finite &= static_cast<uint64_t>(results[i].finite);
  }
  best = BlockMax(memory, best);
  return {ValueOfRankKey(best), IdOfRankKey(best), BlockAnd(memory, finite) != 0};
}

// An id's value with its noise, for the argmax.
struct Noise {
  const SamplingParams& params;
  int32_t position;

  __device__ uint64_t Key(float scaled, int32_t id) const {
    return RankKey(scaled + GumbelInline(params.seed, params.sample_index, position, id), id);
  }
};

__device__ uint64_t BestContender(BlockReduceMemory& memory, const CutRow& row, const Noise& noise,
                                  const SampleChunkResult* results, int32_t chunks) {
  uint64_t best = 0;
  bool fit = true;
  for (auto i = static_cast<int32_t>(threadIdx.x); i < chunks; i += kChooseThreads) {
    fit &= results[i].contenders <= kSampleContenders;
    for (int32_t j = 0; j < min(results[i].contenders, kSampleContenders); ++j) {
      const int32_t id = results[i].contender[j];
      const uint64_t key = noise.Key(row.Scaled(row.logits[id]), id);
      best = key > best ? key : best;
    }
  }
  if (__syncthreads_and(fit) == 0) {
    ForEachLogit(row, [&](float logit, int32_t id) {
      const uint64_t key = noise.Key(row.Scaled(logit), id);
      best = key > best ? key : best;
    });
  }
  return BlockMax(memory, best);
}

// The best of what top-k, top-p and min-p leave.
__device__ uint64_t BestOfCut(CutMemory& memory, const CutRow& row, const Noise& noise) {
  const uint64_t cut = CutOfRow(memory, row, noise.params);
  uint64_t best = 0;
  float best_value = MinusInfinity();
  ForEachLogit(row, [&](float logit, int32_t id) {
    const float scaled = row.Scaled(logit);
    if (scaled < -kLive || scaled + kGumbelMax < best_value || RankKey(logit, id) < cut ||
        (noise.params.min_p > 0 && ExpInline(scaled) < noise.params.min_p)) {
      return;
    }
    const uint64_t key = noise.Key(scaled, id);
    best = key > best ? key : best;
    best_value = ValueOfRankKey(best);
  });
  return BlockMax(memory.reduce, best);
}

// log of the sum of exp(logit - max) over the row; in thread 0.
__device__ float LogSum(ChooseMemory& memory, float max, const SampleChunkResult* results, int32_t chunks) {
  __syncthreads();
  for (auto i = static_cast<int32_t>(threadIdx.x); i < chunks; i += kChooseThreads) {
    memory.sum[i] = Rescaled({results[i].max, results[i].sum_exp}, max, kLog2OfE);
  }
  __syncthreads();
  if (threadIdx.x != 0) {
    return 0;
  }
  float sum = 0;
  for (int32_t i = 0; i < chunks; ++i) {
    sum += memory.sum[i];
  }
  return LogOfNormal(sum);
}

// One block a row: the choice.
__global__ void __launch_bounds__(kChooseThreads) Choose(Launch launch) {
  extern __shared__ __align__(16) unsigned char shared[];
  ChooseMemory& memory = *reinterpret_cast<ChooseMemory*>(shared);
  const SampleTargetArgs& args = launch.args;
  const int64_t at = blockIdx.x;
  const SamplingParams* params = ParamsOf(args, at);
  const SampleChunkResult* results = launch.results + at * launch.chunks;
  RowPeak peak = {0, 0, false};
  if (params != nullptr) {
    peak = PeakOfChunks(memory.cut.reduce, results, launch.chunks);
  }
  const bool with_log_prob = args.log_prob.size > 0;
  if (!peak.finite) {
    if (threadIdx.x == 0) {
      args.chosen[at] = TokenId{0};
      args.error[at] = 1;
      if (with_log_prob) {
        args.log_prob[at] = 0;
      }
    }
    return;
  }
  const CutRow row = {args.logits.row(at), args.logits.columns, peak.max, params->temperature};
  int32_t chosen = peak.max_id;
  if (params->temperature > 0) {
    const Noise noise = {*params, args.position[at]};
    chosen = IdOfRankKey(Truncates(*params, row.vocabulary)
                             ? BestOfCut(memory.cut, row, noise)
                             : BestContender(memory.cut.reduce, row, noise, results, launch.chunks));
  }
  if (with_log_prob) {
    const float log_sum = LogSum(memory, peak.max, results, launch.chunks);
    if (threadIdx.x == 0) {
      args.log_prob[at] = (row.logits[chosen] - peak.max) - log_sum;
    }
  }
  if (threadIdx.x == 0) {
    args.chosen[at] = TokenId{chosen};
    args.error[at] = 0;
  }
}

}  // namespace

absl::Status SampleTarget(const SampleTargetArgs& args, StreamView stream) {
  RETURN_IF_ERROR(ValidateSampleTargetShapes(args));
  const int64_t rows = args.logits.rows;
  if (rows == 0) {
    return absl::OkStatus();
  }
  if (args.error.size != rows) {
    return absl::InvalidArgumentError("sample_target: expected an error flag for each row on CUDA");
  }
  if (args.scratch.size < static_cast<int64_t>(SampleTargetCudaScratchBytes(rows, args.logits.columns))) {
    return absl::InvalidArgumentError("sample_target: scratch is too small for these rows on CUDA");
  }
  const Launch launch = {.args = args,
                         .results = reinterpret_cast<SampleChunkResult*>(args.scratch.data),
                         .chunks = static_cast<int32_t>(CeilDiv(args.logits.columns, kSampleChunk))};
  const auto cuda_stream = static_cast<cudaStream_t>(stream.cuda_stream);
  RETURN_IF_ERROR(CudaStatus(cudaFuncSetAttribute(Choose, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                                  static_cast<int>(sizeof(ChooseMemory))),
                             "sample_target"));
  ReadChunks<<<static_cast<unsigned>(rows * launch.chunks), kReadThreads, 0, cuda_stream>>>(launch);
  Choose<<<static_cast<unsigned>(rows), kChooseThreads, sizeof(ChooseMemory), cuda_stream>>>(launch);
  return LaunchStatus("sample_target");
}

}  // namespace arborist::kernels::cuda
