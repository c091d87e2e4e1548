#pragma once

#include <cstdint>

namespace arborist::kernels {

// What the CUDA column keeps between its two launches.

// Ids that one block reads in the first launch; part of the order of log_prob's sum.
inline constexpr int64_t kSampleChunk = 4096;

// Ids that may win a row whose noise alone decides: all within a margin of the chunk's best, which is more
// than rounding can be. More than this many (they tie) and the second launch reads the whole row.
inline constexpr int kSampleContenders = 6;

struct SampleChunkResult {
  float max;           // of the chunk's logits
  int32_t max_id;      // the first that equals it
  float sum_exp;       // sum of exp(logit - max)
  int32_t finite;      // 1 when every logit is
  float best;          // (logit - max) / T + noise of the best, as this chunk sees it
  int32_t contenders;  // kSampleContenders + 1: more than fit
  int32_t id[kSampleContenders];
};

}  // namespace arborist::kernels
