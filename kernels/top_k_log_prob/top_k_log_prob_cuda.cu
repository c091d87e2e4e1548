#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>

#include "absl/strings/str_cat.h"
#include "common/base/math.h"
#include "common/base/status_macros.h"
#include "common/device/cuda_status.h"
#include "kernels/kernel_overlap/kernel_overlap.cuh"
#include "kernels/top_k_log_prob/candidate_buffer.cuh"
#include "kernels/top_k_log_prob/finish_row.cuh"
#include "kernels/top_k_log_prob/lane_maxima.cuh"
#include "kernels/top_k_log_prob/logits_tile.cuh"
#include "kernels/top_k_log_prob/noisy_rows.cuh"
#include "kernels/top_k_log_prob/plain_rows.cuh"
#include "kernels/top_k_log_prob/top_k_log_prob.h"
#include "kernels/top_k_log_prob/top_k_log_prob_cuda.h"

namespace arborist::kernels::cuda {
namespace {

constexpr int kThreads = kBufferThreads;
// Of the second launch where a row is one part: as many as the largest chips hold.
constexpr unsigned kFinishBlocks = 264;

struct Launch {
  TopKLogProbArgs args;
  TopKTileSum* sums;        // [rows, tiles]
  TopKPartResult* results;  // [rows, parts]
  uint16_t* maxima;         // [rows, tiles, 64]; of several parts a row
  uint32_t* parts_done;     // [rows], with noise
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

// What a block goes through of a row.
struct Part {
  int32_t begin;
  int32_t end;  // begin + a multiple of kTopKRound; may lie beyond the vocabulary
};

constexpr auto kTileIds = static_cast<int32_t>(kTopKTile);
constexpr auto kRoundIds = static_cast<int32_t>(kTopKRound);
constexpr auto kTileMaxima = static_cast<int32_t>(kTopKTileMaxima);
static_assert(kTopKRound == kBufferWarps * kTopKTile);

__device__ int32_t WarpOffset() { return static_cast<int32_t>(threadIdx.x / 32) * kTileIds; }

__device__ Part PartOf(const Launch& launch) {
  const auto begin = static_cast<int32_t>(blockIdx.y) * launch.part_ids;
  return {begin, begin + launch.part_ids};
}

// Where the largest values of the row's lanes are kept: in the block's own memory if the row is one part.
__device__ uint16_t* MaximaOf(const Launch& launch, int64_t at) {
  extern __shared__ uint4 own_maxima[];
  return launch.parts == 1 ? reinterpret_cast<uint16_t*>(own_maxima)
                           : launch.maxima + at * launch.tiles * kTileMaxima;
}

// Goes through the block's part: the sum and the lanes' largest of each tile. `next` holds this warp's first.
// *probe becomes NaN where a logit is not finite, if the row's work includes that.
template <typename Tile, typename Element, typename RowWork>
__device__ void ReadPart(const Launch& launch, const LogitsRow<Element>& logits, int64_t at,
                         const RowWork& work, Tile& next, float* probe) {
  constexpr bool kAhead = sizeof(Tile) <= 64;  // of fp32 there is no room for two
  const Part part = PartOf(launch);
  const int32_t end = min(part.end, logits.vocabulary);
  uint16_t* const maxima = MaximaOf(launch, at);
  for (int32_t first = part.begin + WarpOffset(); first < end; first += kRoundIds) {
    const Tile tile = next;
    if (kAhead && first + kRoundIds < end) {
      next.Load(logits, first + kRoundIds);
    }
    work.Probe(tile, first, probe);
    const int32_t index = first / kTileIds;
    work.Take(tile, first, launch.sums + at * launch.tiles + index, maxima + index * kTileMaxima);
    if (!kAhead && first + kRoundIds < end) {
      next.Load(logits, first + kRoundIds);
    }
  }
}

// All parts of the row have been read.
template <typename Element, typename RowWork>
__device__ void FinishRow(const Launch& launch, const Row& row, int64_t at, const RowWork& work, bool finite,
                          CandidateBuffer& buffer, FinishMemory& memory) {
  const RowOutput output = OutputOf(launch, row, at);
  const TileSums sums(output);
  if (__syncthreads_and(finite && sums.Finite()) == 0) {
    WriteBrokenRow(output);
    return;
  }
  const LogitsRow<Element> logits(launch.args.logits, at);
  const LaneMaxima maxima = {MaximaOf(launch, at), launch.tiles * kTileMaxima};
  const int32_t held = CandidatesOfMaxima(logits, work, maxima, row.k, buffer);
  WriteRow(buffer, held, sums, output, memory);
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

// Block (row, part): rows without noise, to their end where a row is one part; the largest logits of the rows
// with noise, which the next launch needs.
template <typename Tile, typename Element>
__global__ void __launch_bounds__(kThreads, sizeof(Tile) <= 64 ? 4 : 3) ReadRows(Launch launch) {
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
  TopKPartResult* const result = launch.results + at * launch.parts + blockIdx.y;
  float probe = 0;
  if (row.params.temperature > 0) {
    const float max = MaxOfPart(logits, part, first, &probe);
    const bool finite = __syncthreads_and(probe == 0.0f) != 0;
    if (threadIdx.x == 0) {
      *result = {max, finite ? 1 : 0};
      if (blockIdx.y == 0) {
        launch.parts_done[at] = 0;
      }
    }
    return;
  }
  const PlainRow<Tile, Element> work(row.params, logits);
  ReadPart(launch, logits, at, work, first, &probe);
  const bool finite = __syncthreads_and(probe == 0.0f) != 0;
  if (launch.parts == 1) {
    FinishRow<Element>(launch, row, at, work, finite, buffer, memory);
  } else if (threadIdx.x == 0) {
    result->finite = finite ? 1 : 0;
  }
}

// The largest logit of the row, from its parts.
__device__ float MaxOfParts(const TopKPartResult* results, int32_t parts) {
  float max = MinusInfinity();
  for (auto i = static_cast<int32_t>(threadIdx.x % 32); i < parts; i += 32) {
    max = fmaxf(max, results[i].logit_max);
  }
  return MaxOfWarp(max);
}

// Of this thread's share: whether the launch before found the row's parts finite.
__device__ bool PartsFinite(const TopKPartResult* results, int32_t parts) {
  static_assert(kMaxRounds <= kThreads);
  const auto part = static_cast<int32_t>(threadIdx.x);
  return part >= parts || results[part].finite != 0;
}

// In all threads: whether all parts of the row have come here, and then what they wrote can be read.
__device__ bool LastPart(const Launch& launch, int64_t at) {
  __shared__ bool last;
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) {
    last = atomicAdd(&launch.parts_done[at], 1u) + 1 == static_cast<uint32_t>(launch.parts);
    __threadfence();
  }
  __syncthreads();
  return last;
}

template <typename Tile, typename Element>
__device__ void NoisyPart(const Launch& launch, const Row& row, int64_t at, CandidateBuffer& buffer,
                          FinishMemory& memory) {
  const Part part = PartOf(launch);
  const LogitsRow<Element> logits(launch.args.logits, at);
  Tile first;
  if (part.begin + WarpOffset() < logits.vocabulary) {
    first.Load(logits, part.begin + WarpOffset());
  }
  const TopKPartResult* results = launch.results + at * launch.parts;
  const NoisyRow<Tile> work(row.params, row.position, MaxOfParts(results, launch.parts), logits.vocabulary);
  ReadPart(launch, logits, at, work, first, nullptr);
  __syncthreads();
  if (launch.parts == 1 || LastPart(launch, at)) {
    FinishRow<Element>(launch, row, at, work, PartsFinite(results, launch.parts), buffer, memory);
  }
}

// Block (row, part): rows with noise, and the end of those without whose several parts the launch before has
// read. Where rows are one part, blocks go through many of them.
template <typename Tile, typename Element>
__global__ void __launch_bounds__(kThreads, 2) FinishRows(Launch launch) {
  __shared__ CandidateBuffer buffer;
  __shared__ FinishMemory memory;
  LetNextKernelStart();
  const int64_t rows = launch.args.logits.rows;
  // All rows of the block are looked at together: often none is left.
  bool any = false;
  for (int64_t at = blockIdx.x + int64_t{threadIdx.x} * gridDim.x; at < rows;
       at += int64_t{kThreads} * gridDim.x) {
    const Row row = RowOf(launch, static_cast<uint32_t>(at));
    any |= row.k > 0 && (row.params.temperature > 0 || (launch.parts > 1 && blockIdx.y == 0));
  }
  WaitForKernelBefore();
  if (__syncthreads_or(any) == 0) {
    return;
  }
  for (int64_t at = blockIdx.x; at < rows; at += gridDim.x) {
    const Row row = RowOf(launch, static_cast<uint32_t>(at));
    if (row.k > 0 && row.params.temperature > 0) {
      NoisyPart<Tile, Element>(launch, row, at, buffer, memory);
    } else if (row.k > 0 && launch.parts > 1 && blockIdx.y == 0) {
      const PlainRow<Tile, Element> work(row.params, LogitsRow<Element>(launch.args.logits, at));
      const bool finite = PartsFinite(launch.results + at * launch.parts, launch.parts);
      FinishRow<Element>(launch, row, at, work, finite, buffer, memory);
    }
    __syncthreads();
  }
}

constexpr int MaximaBytes(int32_t tiles) { return tiles * kTileMaxima * 2; }

absl::Status LaunchOne(const char* name, void (*kernel)(Launch), unsigned blocks, const Launch& launch,
                       cudaStream_t stream) {
  const int shared_bytes = launch.parts == 1 ? MaximaBytes(launch.tiles) : 0;
  constexpr auto kMostTiles = static_cast<int32_t>(kMaxRounds * kTopKRound / kTopKTile);
  RETURN_IF_ERROR(  // of the current device; ranks have one each
      CudaStatus(
          cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, MaximaBytes(kMostTiles)),
          name));
  return LaunchOverlapped(name, kernel,
                          {.grid = dim3(blocks, static_cast<unsigned>(launch.parts)),
                           .block = dim3(kThreads),
                           .shared_bytes = static_cast<size_t>(shared_bytes)},
                          stream, launch);
}

template <typename Tile, typename Element>
absl::Status LaunchAll(const Launch& launch, cudaStream_t stream) {
  const auto rows = static_cast<unsigned>(launch.args.logits.rows);
  RETURN_IF_ERROR(LaunchOne("top_k_log_prob: logits", ReadRows<Tile, Element>, rows, launch, stream));
  return LaunchOne("top_k_log_prob: rows", FinishRows<Tile, Element>,
                   launch.parts == 1 ? std::min(rows, kFinishBlocks) : rows, launch, stream);
}

}  // namespace

absl::Status TopKLogProb(const TopKLogProbArgs& args, StreamView stream) {
  RETURN_IF_ERROR(ValidateTopKLogProbShapes(args));
  const int64_t rows = args.logits.rows;
  const int64_t vocabulary = args.logits.columns;
  if (rows == 0) {
    return absl::OkStatus();
  }
  if (CeilDiv(vocabulary, kTopKRound) > kMaxRounds) {
    return absl::InvalidArgumentError(absl::StrCat("logits.columns=", vocabulary, ", expected at most ",
                                                   kMaxRounds * kTopKRound, " on CUDA"));
  }
  const size_t needed = TopKLogProbCudaScratchBytes(rows, vocabulary);
  if (args.scratch.size < static_cast<int64_t>(needed)) {
    return absl::InvalidArgumentError(
        absl::StrCat("scratch.size=", args.scratch.size, ", expected at least ", needed));
  }
  const TopKCut cut = TopKCutOf(rows, vocabulary);
  const int64_t tiles = CeilDiv(vocabulary, kTopKTile);
  auto* const maxima = reinterpret_cast<uint16_t*>(args.scratch.data);
  auto* const sums =
      reinterpret_cast<TopKTileSum*>(maxima + (cut.parts > 1 ? rows * tiles * kTopKTileMaxima : 0));
  auto* const results = reinterpret_cast<TopKPartResult*>(sums + rows * tiles);
  const Launch launch = {.args = args,
                         .sums = sums,
                         .results = results,
                         .maxima = maxima,
                         .parts_done = reinterpret_cast<uint32_t*>(results + rows * cut.parts),
                         .depths = static_cast<int32_t>(rows / args.params.size),
                         .tiles = static_cast<int32_t>(tiles),
                         .parts = static_cast<int32_t>(cut.parts),
                         .part_ids = static_cast<int32_t>(cut.part_ids)};
  const auto cuda_stream = static_cast<cudaStream_t>(stream.cuda_stream);
  return args.logits.dtype == DType::kBF16 ? LaunchAll<PackedTile, BFloat16>(launch, cuda_stream)
                                           : LaunchAll<FloatTile, float>(launch, cuda_stream);
}

}  // namespace arborist::kernels::cuda
