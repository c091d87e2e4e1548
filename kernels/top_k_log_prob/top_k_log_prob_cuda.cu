#include <cuda_runtime.h>

#include <algorithm>
#include <cfloat>
#include <cstdint>

#include "common/base/math.h"
#include "common/base/status_macros.h"
#include "common/device/cuda_status.h"
#include "kernels/exact_math/exact_scalar.h"
#include "kernels/top_k_log_prob/candidate_buffer.cuh"
#include "kernels/top_k_log_prob/logits_tile.cuh"
#include "kernels/top_k_log_prob/tile_steps.cuh"
#include "kernels/top_k_log_prob/top_k_log_prob.h"
#include "kernels/top_k_log_prob/top_k_log_prob_cuda.h"
#include "kernels/vocabulary_row/exp_sum.cuh"

namespace arborist::kernels::cuda {
namespace {

constexpr int kThreads = kBufferThreads;
constexpr int64_t kMaxSegments = 64;
// Blocks of the selecting launch when there are many rows: enough to fill the largest chips a few times over,
// few enough that finding the first threshold stays cheap. No result depends on it.
constexpr int64_t kWantedBlocks = 2048;
// A block that holds more candidates than this hands on only the best.
constexpr int32_t kWorthReducing = 128;
static_assert(kBufferKept == kTopKHandedOn && kTopKSegment % kTileIds == 0 && kTopKLogProbMaxK <= 64);

struct Launch {
  TopKLogProbArgs args;
  TopKSegmentResult* results;  // [rows, segments]
  int32_t depths;              // rows of a stream
  int32_t segments;            // of a row
  int32_t segments_a_block;
};

struct Row {
  TopKParams params;
  int32_t position;
  int32_t k;  // 0: nothing is wanted
};

__device__ Row RowOf(const Launch& launch, int64_t row) {
  const TopKParams& params = launch.args.params[row / launch.depths];
  const auto depth = static_cast<int32_t>(row % launch.depths);
  const int64_t fits = min(min(launch.args.token.columns, launch.args.log_prob.columns),
                           min(launch.args.logits.columns, int64_t{kTopKLogProbMaxK}));
  const bool wanted = params.k > 0 && depth < params.depths;
  return {params, params.first_position + depth,
          wanted ? static_cast<int32_t>(min(int64_t{params.k}, fits)) : 0};
}

// The segment's sum and whether it was finite, from all threads' parts. The next call is at least two
// barriers away.
__device__ void WriteSegment(CandidateBuffer& buffer, ExpSum own, float scale, float probe, ExpSum* warps,
                             TopKSegmentResult* result) {
  own = JoinWarp(own, scale);
  if (threadIdx.x % 32 == 0) {
    warps[threadIdx.x / 32] = own;
  }
  const bool finite = __syncthreads_and(probe == 0.0f) != 0;
  if (threadIdx.x < 32) {
    own = threadIdx.x < kBufferWarps ? warps[threadIdx.x] : ExpSum{MinusInfinity(), 0.0f};
    own = JoinWarp(own, scale);
  }
  if (threadIdx.x == 0) {
    result->max = own.max;
    result->sum = own.sum;
    result->finite = finite ? 1 : 0;
    result->candidates = 0;
  }
}

// The largest logit of the row, from the segments of the launch before.
__device__ float LogitMax(const TopKSegmentResult* results, int32_t segments) {
  float max = MinusInfinity();
  for (int32_t i = static_cast<int32_t>(threadIdx.x % 32); i < segments; i += 32) {
    max = fmaxf(max, results[i].logit_max);
  }
  return FloatOfKey(__reduce_max_sync(0xffffffffu, OrderKey(max)));
}

// Some segments of one row: their candidates, and each one's sum.
template <typename Tile, typename Element, bool kNoise>
__device__ void SelectSegments(const Launch& launch, const Row& row, const LogitsRow<Element>& logits,
                               TopKSegmentResult* results, int32_t begin, int32_t end, Tile& next,
                               CandidateBuffer& buffer) {
  __shared__ ExpSum warps[kBufferWarps];
  if (threadIdx.x == 0) {
    buffer.count = 0;
  }
  __syncthreads();
  const float logit_max = kNoise ? LogitMax(results, launch.segments) : 0.0f;
  const float scale = row.params.beta * kLog2OfE;
  float threshold = 0;
  int32_t held = 0;
  const int64_t last = min(end * kTopKSegment, logits.vocabulary);
  const int64_t very_first = begin * kTopKSegment;
  int64_t first = very_first;
  // Of a packed tile the next one's loads are under way while this one is worked on; others are too large.
  constexpr bool kAhead = sizeof(Tile) <= 64;
  constexpr KeyBits kBits = kAhead ? KeyBits::kUpper : KeyBits::kAll;
  Tile tile;
  for (int32_t segment = begin; segment < end; ++segment) {
    ExpSum sum = {MinusInfinity(), 0.0f};
    float probe = 0;
    const int64_t segment_end = min((segment + 1) * kTopKSegment, last);
    for (; first < segment_end; first += kTileIds) {
      tile = next;
      if (kAhead && first + kTileIds < last) {
        next.Load(logits, first + kTileIds);
      }
      tile.Probe(logits, first, &probe);
      if constexpr (kNoise) {
        tile.AddNoise(row.params, row.position, logit_max, first, logits.vocabulary);
      }
      const float tile_max = tile.Max();
      if (first == very_first) {
        threshold = FirstThreshold(buffer, tile_max, row.k);
      }
      AddExp(tile, tile_max, scale, &sum);
      Offer(buffer, tile, first, logits.vocabulary, row.k, kBits, &threshold, &held);
      if (!kAhead && first + kTileIds < last) {
        next.Load(logits, first + kTileIds);
      }
    }
    WriteSegment(buffer, sum, scale, probe, warps, &results[segment]);
  }
  if (held > kWorthReducing) {
    Reduce(buffer, held, row.k, kBits);
    held = buffer.count;
  }
  for (auto i = static_cast<int32_t>(threadIdx.x); i < held; i += kThreads) {
    results[begin].candidate[i] = buffer.key[i];
  }
  if (threadIdx.x == 0) {
    results[begin].candidates = held;
  }
}

template <typename Element>
__device__ void MaxOfSegments(const LogitsRow<Element>& logits, TopKSegmentResult* results, int32_t begin,
                              int32_t end) {
  __shared__ uint32_t max_key;
  for (int32_t segment = begin; segment < end; ++segment) {
    if (threadIdx.x == 0) {
      max_key = 0;
    }
    __syncthreads();
    float max = MinusInfinity();
    const int64_t segment_begin = segment * kTopKSegment;
    for (int64_t first = segment_begin; first < min(segment_begin + kTopKSegment, logits.vocabulary);
         first += kTileIds) {
      FloatTile tile;
      tile.Load(logits, first);
      max = fmaxf(max, tile.Max());
    }
    const uint32_t key = __reduce_max_sync(0xffffffffu, OrderKey(max));
    if (threadIdx.x % 32 == 0) {
      atomicMax(&max_key, key);
    }
    __syncthreads();
    if (threadIdx.x == 0) {
      results[segment].logit_max = FloatOfKey(max_key);
    }
  }
}

// Block (row, part). Without noise: selects, and finds the largest logits of the rows that have noise, which
// the launch with noise needs first.
template <typename Tile, typename Element, bool kNoise>
__global__ void __launch_bounds__(kThreads, kNoise ? 2 : 3) TopKSelect(Launch launch) {
  __shared__ CandidateBuffer buffer;
  const int64_t at = blockIdx.x;
  const auto begin = static_cast<int32_t>(blockIdx.y) * launch.segments_a_block;
  const int32_t end = min(begin + launch.segments_a_block, launch.segments);
  const LogitsRow<Element> logits(launch.args.logits, at);
  Tile first;
  if constexpr (!kNoise) {
    first.Load(logits, begin * kTopKSegment);  // under way while the row's parameters are read
  }
  const Row row = RowOf(launch, at);
  const bool noise = row.params.temperature > 0;
  if (row.k == 0 || (kNoise && !noise)) {
    return;
  }
  if constexpr (kNoise) {
    first.Load(logits, begin * kTopKSegment);
  }
  TopKSegmentResult* results = launch.results + at * launch.segments;
  if (noise && !kNoise) {
    MaxOfSegments(logits, results, begin, end);
  } else {
    SelectSegments<Tile, Element, kNoise>(launch, row, logits, results, begin, end, first, buffer);
  }
}

// What the merge knows of the row's segments.
struct Segments {
  ExpSum sum[kMaxSegments];
  int32_t candidates[kMaxSegments];
};

// Brings the row's k best into the buffer, and perhaps some more; returns how many.
__device__ int32_t MergeCandidates(const TopKSegmentResult* results, const Segments& segments, int32_t count,
                                   int32_t k, KeyBits bits, CandidateBuffer& buffer) {
  int32_t held = 0;
  for (int32_t next = 0; next < count;) {
    const int32_t from = next;
    int32_t added = 0;
    while (next < count && held + added + segments.candidates[next] <= CandidateBuffer::kCapacity) {
      added += segments.candidates[next++];
    }
    // A warp a segment.
    int32_t at = held;
    for (int32_t segment = from; segment < next; ++segment) {
      const int32_t candidates = segments.candidates[segment];
      if (segment % kBufferWarps == static_cast<int32_t>(threadIdx.x / 32)) {
#pragma unroll 4
        for (auto i = static_cast<int32_t>(threadIdx.x % 32); i < candidates; i += 32) {
          buffer.key[at + i] = results[segment].candidate[i];
        }
      }
      at += candidates;
    }
    __syncthreads();
    held = at;
    if (next < count || held > kWorthReducing) {
      Reduce(buffer, held, k, bits);
      held = buffer.count;
    }
  }
  return held;
}

// One block a row: the k best of all parts in order, the sum over all segments, the edges.
__global__ void __launch_bounds__(kThreads) TopKMerge(Launch launch) {
  __shared__ CandidateBuffer buffer;
  __shared__ Segments segments;
  __shared__ uint64_t sorted[kTopKLogProbMaxK];
  __shared__ float log_sum;
  const int64_t at = blockIdx.x;
  const Row row = RowOf(launch, at);
  if (row.k == 0) {
    return;
  }
  const TopKSegmentResult* results = launch.results + at * launch.segments;
  const auto thread = static_cast<int32_t>(threadIdx.x);
  bool finite = true;
  if (thread < launch.segments) {
    segments.sum[thread] = {results[thread].max, results[thread].sum};
    segments.candidates[thread] = results[thread].candidates;
    finite = results[thread].finite != 0;
  }
  finite = __syncthreads_and(finite) != 0;
  TokenId* token = launch.args.token.row(at);
  float* log_prob = launch.args.log_prob.row(at);
  if (!finite) {
    if (thread < row.k) {
      token[thread] = TokenId{0};
      log_prob[thread] = __uint_as_float(0x7fc00000u);
    }
    return;
  }
  const bool narrow = launch.args.logits.dtype == DType::kBF16 && !(row.params.temperature > 0);
  const KeyBits bits = narrow ? KeyBits::kUpper : KeyBits::kAll;
  const int32_t held = MergeCandidates(results, segments, launch.segments, row.k, bits, buffer);
  for (int32_t own = thread; own < held; own += kThreads) {
    int rank = 0;
    for (int32_t i = 0; i < held; ++i) {
      rank += buffer.key[i] > buffer.key[own] ? 1 : 0;
    }
    if (rank < row.k) {
      sorted[rank] = buffer.key[own];
    }
  }
  __syncthreads();
  const float max = ValueOfRankKey(sorted[0]);
  const float scale = row.params.beta * kLog2OfE;
  if (thread < launch.segments) {
    segments.sum[thread].sum = Rescaled(segments.sum[thread], max, scale);
  }
  __syncthreads();
  if (thread == 0) {
    float sum = 0;
    for (int32_t segment = 0; segment < launch.segments; ++segment) {
      sum += segments.sum[segment].sum;
    }
    log_sum = LogOfNormal(sum);
  }
  __syncthreads();
  if (thread < row.k) {
    const float edge = (ValueOfRankKey(sorted[thread]) - max) * row.params.beta - log_sum;
    token[thread] = TokenId{IdOfRankKey(sorted[thread])};
    log_prob[thread] = fminf(fmaxf(edge, -1e30f), 0.0f);  // EdgeLogProb
  }
}

template <typename Tile, typename Element>
absl::Status LaunchAll(const Launch& launch, cudaStream_t stream) {
  const auto rows = static_cast<unsigned>(launch.args.logits.rows);
  const auto parts = static_cast<unsigned>(CeilDiv(launch.segments, launch.segments_a_block));
  TopKSelect<Tile, Element, false><<<dim3(rows, parts), kThreads, 0, stream>>>(launch);
  TopKSelect<FloatTile, Element, true><<<dim3(rows, parts), kThreads, 0, stream>>>(launch);
  TopKMerge<<<rows, kThreads, 0, stream>>>(launch);
  return LaunchStatus("top_k_log_prob");
}

}  // namespace

absl::Status TopKLogProb(const TopKLogProbArgs& args, StreamView stream) {
  RETURN_IF_ERROR(ValidateTopKLogProbShapes(args));
  const int64_t rows = args.logits.rows;
  if (rows == 0) {
    return absl::OkStatus();
  }
  const int64_t segments = CeilDiv(args.logits.columns, kTopKSegment);
  if (segments > kMaxSegments) {
    return absl::InvalidArgumentError("top_k_log_prob: expected at most 2^20 logits.columns on CUDA");
  }
  if (args.scratch.size < static_cast<int64_t>(TopKLogProbCudaScratchBytes(rows, args.logits.columns))) {
    return absl::InvalidArgumentError("top_k_log_prob: scratch is too small for these rows on CUDA");
  }
  const int64_t a_block = std::clamp<int64_t>(rows * segments / kWantedBlocks, 1, segments);
  const Launch launch = {.args = args,
                         .results = reinterpret_cast<TopKSegmentResult*>(args.scratch.data),
                         .depths = static_cast<int32_t>(rows / args.params.size),
                         .segments = static_cast<int32_t>(segments),
                         .segments_a_block = static_cast<int32_t>(a_block)};
  const auto cuda_stream = static_cast<cudaStream_t>(stream.cuda_stream);
  return args.logits.dtype == DType::kBF16 ? LaunchAll<PackedTile, BFloat16>(launch, cuda_stream)
                                           : LaunchAll<FloatTile, float>(launch, cuda_stream);
}

}  // namespace arborist::kernels::cuda
