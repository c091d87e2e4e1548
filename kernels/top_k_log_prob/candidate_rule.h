#pragma once

#include <algorithm>

#include "absl/status/status.h"
#include "kernels/top_k_log_prob/top_k_log_prob.h"

namespace arborist::kernels {

// An edge from z and log(sum exp(z)): what every backend shares.
inline float EdgeLogProb(float z, float log_sum) { return std::clamp(z - log_sum, -1e30f, 0.0f); }

// The stream and the depth of a row of logits.
struct DraftRow {
  const TopKParams& params;
  int32_t depth;

  bool wanted() const { return params.k > 0 && depth < params.depths; }
  int32_t position() const { return params.first_position + depth; }
};
inline DraftRow DraftRowOf(const TopKLogProbArgs& args, int64_t row) {
  const int64_t depths = args.logits.rows / args.params.size;
  return {args.params[row / depths], static_cast<int32_t>(row % depths)};
}

// One row of the logits as fp32: the row itself, or widened into `memory` [vocabulary].
const float* Fp32Row(const LogitsView& logits, int64_t row, float* memory);

// Internal, naming row and id of the first logit that is not finite; OK if there is none.
absl::Status NonFiniteDraftLogit(const TopKLogProbArgs& args, int64_t row);

}  // namespace arborist::kernels
