#pragma once

#include <cstdint>

namespace arborist::kernels {

// Ids that remain, ascending, and what the searches work with. Each cut keeps a prefix of the order (logit,
// lower id).
struct RemainingIds {
  int32_t* ids;         // [vocabulary]
  int64_t count;        // >= 1
  int32_t* work;        // [vocabulary]
  uint64_t* histogram;  // [kHistogramBins]
};

// Keeps the first k of the order; k >= 1.
void KeepTopK(const float* logits, int64_t k, RemainingIds& remaining);

// Keeps the shortest prefix whose mass is >= top_p * the mass of all that remain. weight is indexed by id.
void KeepTopP(const float* logits, const float* weight, float top_p, RemainingIds& remaining);

// Keeps ids with weight >= min_p.
void KeepMinP(const float* weight, float min_p, RemainingIds& remaining);

}  // namespace arborist::kernels
