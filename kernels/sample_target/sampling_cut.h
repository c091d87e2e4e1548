#pragma once

#include <cstdint>

namespace arborist::kernels {

// A prefix of the order (logit, lower id): keys above `key`, and the first `ties` ids that have it.
struct SamplingCut {
  uint32_t key = 0;
  int64_t ties = 0;
};

// Working memory of one search: ids [count], histogram [kHistogramBins].
struct CutScratch {
  int32_t* ids;
  uint64_t* histogram;
};

// The first k of the order; 1 <= k <= count.
SamplingCut CutToCount(const float* logits, int64_t count, int64_t k, const CutScratch& scratch);

// The shortest prefix with Mass(weight) >= top_p * the mass of `within`.
SamplingCut CutToMass(const float* logits, const float* weight, int64_t count, float top_p,
                      const SamplingCut& within, const CutScratch& scratch);

// Everything.
inline SamplingCut NoCut(int64_t count) { return {.key = 0, .ties = count}; }

}  // namespace arborist::kernels
