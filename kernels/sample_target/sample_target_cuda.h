#pragma once

#include <algorithm>
#include <cstdint>

#include "common/base/math.h"

namespace arborist::kernels {

// What the CUDA column keeps between its launches.

// Ids that one block of the first launch reads; part of the order of log_prob's sum.
inline constexpr int64_t kSampleChunk = 4096;

// Ids of a chunk that may win a row which noise alone decides: those within a margin of the chunk's best that
// is far more than rounding. Where more than this many tie, the last launch reads the whole row.
inline constexpr int kSampleContenders = 6;

struct SampleChunkResult {
  float max;       // of the chunk's logits
  int32_t max_id;  // the first that equals it
  float sum_exp;   // of exp(logit - max); 0 without log_prob
  int32_t finite;
  int32_t contenders;  // may exceed the array
  int32_t contender[kSampleContenders];
  int32_t unused;
};

// Ids that one block of the launches about truncated rows reads: as many as leave work for all processors. No
// result depends on it.
inline constexpr int64_t kSampleLeastPart = 8192;
inline constexpr int64_t kSampleMostPart = 131072;
inline constexpr int64_t kSamplePartBlocks = 640;
inline int64_t SamplePartIds(int64_t rows, int64_t vocabulary) {
  const int64_t a_row = std::max<int64_t>(kSamplePartBlocks / std::max<int64_t>(rows, 1), 1);
  return std::clamp(RoundUp(CeilDiv(vocabulary, a_row), 2048), kSampleLeastPart, kSampleMostPart);
}

// Bins of the scaled logits, and the most ids that a truncated row is searched in; a row whose cut may keep
// more is read again by the block that chooses.
inline constexpr int kSampleBins = 2048;
inline constexpr int kSampleList = 16384;

struct SampleRowCut {
  uint64_t mass[kSampleBins];
  uint32_t count[kSampleBins];
  uint32_t parts_done;
  int32_t last_bin;  // the cut keeps nothing beyond it; -1: there are too many to list
  int32_t listed;
  int32_t unused;
  uint64_t list[kSampleList];  // RankKey of every id up to the last bin
};

}  // namespace arborist::kernels
