#pragma once

#include <cstdint>

namespace arborist::kernels {

// What the CUDA column keeps between its two launches.

// Ids that one block of the first launch reads; part of the order of log_prob's sum.
inline constexpr int64_t kSampleChunk = 4096;

// Ids of a chunk that may win a row which noise alone decides: those within a margin of the chunk's best that
// is far more than rounding. Where more than this many tie, the second launch reads the whole row.
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

}  // namespace arborist::kernels
