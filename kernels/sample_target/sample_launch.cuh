#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/sample_target/block_reduce.cuh"
#include "kernels/sample_target/chunk_sum.cuh"
#include "kernels/sample_target/row_cut.cuh"
#include "kernels/sample_target/sample_target.h"
#include "kernels/sample_target/sample_target_cuda.h"
#include "kernels/sample_target/sampling_rule.h"

namespace arborist::kernels::cuda {

// What the launches of one call share.
struct SampleLaunch {
  SampleTargetArgs args;
  SampleRowCut* cuts;          // [rows]
  SampleChunkResult* results;  // [rows, chunks]
  int32_t chunks;              // of a row
  int32_t parts;               // of a row
  int32_t part_ids;
};

__device__ inline const SamplingParams* ParamsOf(const SampleTargetArgs& args, int64_t row) {
  const int32_t index = __ldcg(&args.params_index[row]);
  return index >= 0 && index < args.params.size ? &args.params[index] : nullptr;
}

__device__ inline bool IsTruncated(const SamplingParams* params, int64_t vocabulary) {
  return params != nullptr && params->temperature > 0 && Truncates(*params, vocabulary);
}

// What all chunks of a row say together.
struct RowPeak {
  float max;
  int32_t max_id;
  bool finite;
};

__device__ inline RowPeak PeakOfChunks(BlockReduceMemory& memory, const SampleChunkResult* results,
                                       int32_t chunks) {
  uint64_t best = 0;
  uint64_t finite = 1;
  for (auto i = static_cast<int32_t>(threadIdx.x); i < chunks; i += static_cast<int32_t>(blockDim.x)) {
    const uint64_t key = RankKey(results[i].max, results[i].max_id);
    best = key > best ? key : best;
    finite &= static_cast<uint64_t>(results[i].finite);
  }
  best = BlockMax(memory, best);
  return {ValueOfRankKey(best), IdOfRankKey(best), BlockAnd(memory, finite) != 0};
}

__device__ inline CutRow RowOf(const SampleLaunch& launch, const SamplingParams& params, int64_t at,
                               float max) {
  return {launch.args.logits.row(at), launch.args.logits.columns, max, params.temperature};
}

}  // namespace arborist::kernels::cuda
