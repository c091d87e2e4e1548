#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>

#include "common/base/math.h"
#include "common/base/status_macros.h"
#include "common/device/cuda_status.h"
#include "kernels/exact_math/exact_scalar.h"
#include "kernels/kernel_overlap/kernel_overlap.cuh"
#include "kernels/sample_target/chunk_sum.cuh"
#include "kernels/sample_target/list_rows.cuh"
#include "kernels/sample_target/read_chunks.cuh"
#include "kernels/sample_target/row_cut.cuh"
#include "kernels/sample_target/sample_launch.cuh"
#include "kernels/sample_target/sample_target.h"
#include "kernels/sample_target/sample_target_cuda.h"
#include "kernels/sample_target/sampling_rule.h"
#include "kernels/vocabulary_row/exp_sum.cuh"

namespace arborist::kernels::cuda {
namespace {

constexpr int kChooseThreads = 512;

struct ChooseMemory {
  CutMemory cut;
  float sum[kMaxVocabulary / kSampleChunk];
};

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
  for (auto i = static_cast<int32_t>(threadIdx.x); i < chunks; i += static_cast<int32_t>(blockDim.x)) {
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

// One block a row: the choice.
__global__ void __launch_bounds__(kChooseThreads) Choose(SampleLaunch launch) {
  extern __shared__ __align__(16) unsigned char shared[];
  ChooseMemory& memory = *reinterpret_cast<ChooseMemory*>(shared);
  const SampleTargetArgs& args = launch.args;
  const int64_t at = blockIdx.x;
  const SamplingParams* params = ParamsOf(args, at);
  WaitForKernelBefore();
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
  CutRow row = RowOf(launch, *params, at, peak.max);
  if (IsTruncated(params, row.vocabulary) && launch.cuts[at].last_bin >= 0) {
    row.listed = launch.cuts + at;
  }
  int32_t chosen = peak.max_id;
  if (params->temperature > 0) {
    const Noise noise = {*params, args.position[at]};
    chosen = IdOfRankKey(Truncates(*params, row.vocabulary)
                             ? BestOfCut(memory.cut, row, noise)
                             : BestContender(memory.cut.reduce, row, noise, results, launch.chunks));
  }
  if (with_log_prob) {
    const float log_sum = LogSum(memory.sum, peak.max, results, launch.chunks);
    if (threadIdx.x == 0) {
      const float below = params->temperature > 0 ? row.logits[chosen] - peak.max : 0.0f;
      args.log_prob[at] = below - log_sum;
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
  const int64_t part_ids = SamplePartIds(rows, args.logits.columns);
  auto* cuts = reinterpret_cast<SampleRowCut*>(args.scratch.data);
  const SampleLaunch launch = {.args = args,
                               .cuts = cuts,
                               .results = reinterpret_cast<SampleChunkResult*>(cuts + rows),
                               .chunks = static_cast<int32_t>(CeilDiv(args.logits.columns, kSampleChunk)),
                               .parts = static_cast<int32_t>(CeilDiv(args.logits.columns, part_ids)),
                               .part_ids = static_cast<int32_t>(part_ids)};
  const auto cuda_stream = static_cast<cudaStream_t>(stream.cuda_stream);
  // One division of the processors' memory for all launches: changing it makes them wait for each other.
  for (const auto kernel : {ReadChunks, FillRowBins, ListRows, Choose}) {
    RETURN_IF_ERROR(CudaStatus(cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout,
                                                    cudaSharedmemCarveoutMaxShared),
                               "sample_target"));
  }
  RETURN_IF_ERROR(CudaStatus(cudaFuncSetAttribute(FillRowBins, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                                  static_cast<int>(sizeof(PartMemory))),
                             "sample_target"));
  RETURN_IF_ERROR(CudaStatus(cudaFuncSetAttribute(Choose, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                                  static_cast<int>(sizeof(ChooseMemory))),
                             "sample_target"));
  const auto row_parts = static_cast<unsigned>(std::min(rows * launch.parts, kSamplePartBlocks));
  RETURN_IF_ERROR(LaunchOverlapped(
      "sample_target: logits", ReadChunks,
      {.grid = dim3(static_cast<unsigned>(rows * launch.chunks)), .block = dim3(kReadThreads)}, cuda_stream,
      launch));
  RETURN_IF_ERROR(LaunchOverlapped(
      "sample_target: bins", FillRowBins,
      {.grid = dim3(row_parts), .block = dim3(kReadThreads), .shared_bytes = sizeof(PartMemory)}, cuda_stream,
      launch));
  RETURN_IF_ERROR(LaunchOverlapped("sample_target: list", ListRows,
                                   {.grid = dim3(row_parts), .block = dim3(kReadThreads)}, cuda_stream,
                                   launch));
  return LaunchOverlapped("sample_target: choice", Choose,
                          {.grid = dim3(static_cast<unsigned>(rows)),
                           .block = dim3(kChooseThreads),
                           .shared_bytes = sizeof(ChooseMemory)},
                          cuda_stream, launch);
}

}  // namespace arborist::kernels::cuda
