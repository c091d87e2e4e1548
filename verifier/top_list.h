#pragma once

#include <algorithm>
#include <cstdint>

#include "verifier/step_controls.h"
#include "verifier/verifier.h"

namespace arborist::verifier {

// Columns of a controlled step's log-probabilities: the chosen (or forced) token, then a full top list.
inline constexpr int64_t kLogProbColumns = 1 + kMaxTopLogProbs;

// The k most probable tokens of a row, which come by logit: logits that differ may have one log-probability,
// and those are told by id.
inline void WriteTopList(const TokenId* token, const float* log_prob, int32_t k, TokenLogProb* out) {
  for (int32_t i = 0; i < k; ++i) {
    out[i] = {.token = token[i], .log_prob = log_prob[i]};
  }
  std::sort(out, out + k, [](const TokenLogProb& a, const TokenLogProb& b) {
    return a.log_prob != b.log_prob ? a.log_prob > b.log_prob : a.token < b.token;
  });
}

}  // namespace arborist::verifier
