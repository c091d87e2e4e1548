#pragma once

#include <algorithm>
#include <cstdint>

#include "common/base/ids.h"
#include "kernels/exact_math/exact_math.h"
#include "kernels/vocabulary_row/vocabulary_row.h"

// The log-probabilities of sample_target.h, for every kernel that has to give the same bits.
namespace arborist::kernels {

// From the row's largest logit and the logarithm of its sum of exp(logit - max).
constexpr float LogProbFrom(float logit, float max, float log_sum) { return (logit - max) - log_sum; }

namespace reference {

// Plain loops. Every logit is finite.
inline float RowLogProb(const float* logits, int64_t vocabulary, TokenId token) {
  const float max = *std::max_element(logits, logits + vocabulary) + 0.0f;  // -0 becomes +0
  float lanes[16] = {};
  for (int64_t v = 0; v < vocabulary; ++v) {
    lanes[v % 16] += ExactExp(logits[v] - max);
  }
  for (int half : {8, 4, 2, 1}) {
    for (int lane = 0; lane < half; ++lane) {
      lanes[lane] += lanes[lane + half];
    }
  }
  return LogProbFrom(logits[Raw(token)], max, ExactLog(lanes[0]));
}

}  // namespace reference

namespace cpu {

// log of the sum of exp(logit - max) over a row with this peak.
inline float RowLogSum(const float* logits, const RowPeak& peak, int64_t vocabulary) {
  return ExactLog(SumExpOfRow(logits, peak.max, 1, vocabulary));
}

}  // namespace cpu
}  // namespace arborist::kernels
