#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>

#include "common/base/math.h"
#include "common/base/status_macros.h"
#include "common/device/cuda_status.h"
#include "kernels/kernel_overlap/kernel_overlap.cuh"
#include "kernels/top_k_log_prob/candidate_buffer.cuh"
#include "kernels/top_k_log_prob/logits_tile.cuh"
#include "kernels/top_k_log_prob/merge_parts.cuh"
#include "kernels/top_k_log_prob/noisy_rows.cuh"
#include "kernels/top_k_log_prob/plain_rows.cuh"
#include "kernels/top_k_log_prob/select_part.cuh"
#include "kernels/top_k_log_prob/top_k_log_prob.h"
#include "kernels/top_k_log_prob/top_k_log_prob_cuda.h"

namespace arborist::kernels::cuda {
namespace {

constexpr int kThreads = kBufferThreads;

struct Launch {
  TopKLogProbArgs args;
  TopKTileSum* sums;        // [rows, tiles]
  TopKPartResult* results;  // [rows, parts]
  int32_t depths;           // rows of a stream
  int32_t tiles;            // of a row
  int32_t parts;            // of a row
  int32_t part_ids;
};

struct Row {
  TopKParams params;
  int32_t position;
  int32_t k;  // 0: nothing is wanted
};

__device__ Row RowOf(const Launch& launch, uint32_t row) {
  const auto depths = static_cast<uint32_t>(launch.depths);
  const TopKParams params = LoadPastL1(&launch.args.params[row / depths]);
  const auto depth = static_cast<int32_t>(row % depths);
  const int64_t fits = min(min(launch.args.token.columns, launch.args.log_prob.columns),
                           min(launch.args.logits.columns, int64_t{kTopKLogProbMaxK}));
  const bool wanted = params.k > 0 && depth < params.depths;
  return {params, params.first_position + depth,
          wanted ? static_cast<int32_t>(min(int64_t{params.k}, fits)) : 0};
}

__device__ RowOutput OutputOf(const Launch& launch, const Row& row, int64_t at) {
  return {launch.args.token.row(at),
          launch.args.log_prob.row(at),
          launch.sums + at * launch.tiles,
          launch.tiles,
          row.k,
          row.params.beta,
          row.params.temperature > 0};
}

// Hands the part's candidates on, or finishes a row that has no other parts.
__device__ void Finish(const Launch& launch, const Row& row, int64_t at, const CandidateBuffer& buffer,
                       int32_t held, bool finite, FinishMemory& memory) {
  if (launch.parts > 1) {
    HandOn(buffer, held, finite, launch.results + at * launch.parts + blockIdx.y);
    return;
  }
  const RowOutput output = OutputOf(launch, row, at);
  const TileSums sums(output);
  if (__syncthreads_and(finite && sums.Finite()) == 0) {
    WriteBrokenRow(output);
    return;
  }
  WriteRow(buffer, held, sums, output, memory);
}

__device__ Part PartOf(const Launch& launch) {
  const auto begin = static_cast<int32_t>(blockIdx.y) * launch.part_ids;
  return {begin, begin + launch.part_ids};
}

// The part's largest logit, and NaN in *probe where one is not finite. `tile` holds this warp's first.
template <typename Tile, typename Element>
__device__ float MaxOfPart(const LogitsRow<Element>& logits, Part part, Tile& tile, float* probe) {
  __shared__ uint32_t max_key;
  if (threadIdx.x == 0) {
    max_key = 0;
  }
  __syncthreads();
  const int32_t end = min(part.end, logits.vocabulary);
  float max = MinusInfinity();
  for (int32_t first = part.begin + WarpOffset(); first < end; first += kRoundIds) {
    const Tile own = tile;
    if (first + kRoundIds < end) {
      tile.Load(logits, first + kRoundIds);
    }
    own.Probe(logits, first, probe);
    max = fmaxf(max, own.Max());
  }
  const uint32_t key = __reduce_max_sync(kAllLanes, OrderKey(max));
  if (threadIdx.x % 32 == 0) {
    atomicMax(&max_key, key);
  }
  __syncthreads();
  return FloatOfKey(max_key);
}

// Block (row, part): the candidates and sums of rows without noise, and the largest logits of the rows with
// noise, which the next launch needs.
template <typename Tile, typename Element>
__global__ void __launch_bounds__(kThreads, sizeof(Tile) <= 64 ? 4 : 3) SelectPlain(Launch launch) {
  __shared__ CandidateBuffer buffer;
  __shared__ FinishMemory memory;
  WaitForKernelBefore();
  LetNextKernelStart();  // from here on all inputs are there: the next launches read them before they wait
  const int64_t at = blockIdx.x;
  const Part part = PartOf(launch);
  const LogitsRow<Element> logits(launch.args.logits, at);
  Tile first;
  if (part.begin + WarpOffset() < logits.vocabulary) {
    first.Load(logits, part.begin + WarpOffset());  // under way while the row's parameters are read
  }
  const Row row = RowOf(launch, blockIdx.x);
  if (row.k == 0) {
    return;
  }
  float probe = 0;
  if (row.params.temperature > 0) {
    const float max = MaxOfPart(logits, part, first, &probe);
    const bool finite = __syncthreads_and(probe == 0.0f) != 0;
    if (threadIdx.x == 0) {
      TopKPartResult* result = launch.results + at * launch.parts + blockIdx.y;
      result->logit_max = max;
      result->finite = finite ? 1 : 0;
    }
    return;
  }
  const PlainRow<Tile, Element> work(row.params, logits);
  const int32_t held =
      SelectPart(logits, work, row.k, part, first, &probe, buffer, launch.sums + at * launch.tiles);
  const bool finite = __syncthreads_and(probe == 0.0f) != 0;
  Finish(launch, row, at, buffer, held, finite, memory);
}

// The largest logit of the row, from its parts.
__device__ float MaxOfParts(const TopKPartResult* results, int32_t parts) {
  float max = MinusInfinity();
  for (auto i = static_cast<int32_t>(threadIdx.x % 32); i < parts; i += 32) {
    max = fmaxf(max, results[i].logit_max);
  }
  return MaxOfWarp(max);
}

// Block (row, part): the candidates and sums of rows with noise.
template <typename Tile, typename Element>
__global__ void __launch_bounds__(kThreads, 2) SelectNoisy(Launch launch) {
  __shared__ CandidateBuffer buffer;
  __shared__ FinishMemory memory;
  LetNextKernelStart();
  const int64_t at = blockIdx.x;
  const Row row = RowOf(launch, blockIdx.x);
  WaitForKernelBefore();
  if (row.k == 0 || !(row.params.temperature > 0)) {
    return;
  }
  const Part part = PartOf(launch);
  const LogitsRow<Element> logits(launch.args.logits, at);
  Tile first;
  if (part.begin + WarpOffset() < logits.vocabulary) {
    first.Load(logits, part.begin + WarpOffset());
  }
  const TopKPartResult* results = launch.results + at * launch.parts;
  const NoisyRow<Tile> work(row.params, row.position, MaxOfParts(results, launch.parts), logits.vocabulary);
  float probe = 0;
  const int32_t held =
      SelectPart(logits, work, row.k, part, first, &probe, buffer, launch.sums + at * launch.tiles);
  const bool finite = results[blockIdx.y].finite != 0;
  __syncthreads();
  Finish(launch, row, at, buffer, held, finite, memory);
}

// One block a row: joins its parts.
__global__ void __launch_bounds__(kThreads) MergeParts(Launch launch) {
  __shared__ CandidateBuffer buffer;
  __shared__ FinishMemory memory;
  __shared__ int32_t candidates[kMaxParts];
  const int64_t at = blockIdx.x;
  const Row row = RowOf(launch, blockIdx.x);
  WaitForKernelBefore();
  if (row.k == 0) {
    return;
  }
  const TopKPartResult* results = launch.results + at * launch.parts;
  const RowOutput output = OutputOf(launch, row, at);
  const TileSums sums(output);
  bool finite = sums.Finite();
  if (static_cast<int32_t>(threadIdx.x) < launch.parts) {
    candidates[threadIdx.x] = results[threadIdx.x].candidates;
    finite &= results[threadIdx.x].finite != 0;
  }
  if (__syncthreads_and(finite) == 0) {
    WriteBrokenRow(output);
    return;
  }
  const bool narrow = launch.args.logits.dtype == DType::kBF16 && !output.noise;
  const KeyBits bits = narrow ? KeyBits::kUpper : KeyBits::kAll;
  const int32_t held = MergeCandidates(results, candidates, launch.parts, row.k, bits, buffer);
  WriteRow(buffer, held, sums, output, memory);
}

template <typename Tile, typename Element>
absl::Status LaunchAll(const Launch& launch, cudaStream_t stream) {
  const auto rows = static_cast<unsigned>(launch.args.logits.rows);
  const dim3 blocks(rows, static_cast<unsigned>(launch.parts));
  RETURN_IF_ERROR(LaunchOverlapped("top_k_log_prob: logits", SelectPlain<Tile, Element>,
                                   {.grid = blocks, .block = dim3(kThreads)}, stream, launch));
  RETURN_IF_ERROR(LaunchOverlapped("top_k_log_prob: noise", SelectNoisy<Tile, Element>,
                                   {.grid = blocks, .block = dim3(kThreads)}, stream, launch));
  if (launch.parts == 1) {
    return absl::OkStatus();
  }
  return LaunchOverlapped("top_k_log_prob: merge", MergeParts, {.grid = dim3(rows), .block = dim3(kThreads)},
                          stream, launch);
}

}  // namespace

absl::Status TopKLogProb(const TopKLogProbArgs& args, StreamView stream) {
  RETURN_IF_ERROR(ValidateTopKLogProbShapes(args));
  const int64_t rows = args.logits.rows;
  const int64_t vocabulary = args.logits.columns;
  if (rows == 0) {
    return absl::OkStatus();
  }
  if (CeilDiv(vocabulary, kTopKRound) > kMaxParts) {
    return absl::InvalidArgumentError("top_k_log_prob: expected at most 2^20 logits.columns on CUDA");
  }
  if (args.scratch.size < static_cast<int64_t>(TopKLogProbCudaScratchBytes(rows, vocabulary))) {
    return absl::InvalidArgumentError("top_k_log_prob: scratch is too small for these rows on CUDA");
  }
  const TopKCut cut = TopKCutOf(rows, vocabulary);
  const int64_t tiles = CeilDiv(vocabulary, kTopKTile);
  auto* results = reinterpret_cast<TopKPartResult*>(args.scratch.data);
  const Launch launch = {.args = args,
                         .sums = reinterpret_cast<TopKTileSum*>(results + rows * cut.parts),
                         .results = results,
                         .depths = static_cast<int32_t>(rows / args.params.size),
                         .tiles = static_cast<int32_t>(tiles),
                         .parts = static_cast<int32_t>(cut.parts),
                         .part_ids = static_cast<int32_t>(cut.part_ids)};
  const auto cuda_stream = static_cast<cudaStream_t>(stream.cuda_stream);
  return args.logits.dtype == DType::kBF16 ? LaunchAll<PackedTile, BFloat16>(launch, cuda_stream)
                                           : LaunchAll<FloatTile, float>(launch, cuda_stream);
}

}  // namespace arborist::kernels::cuda
