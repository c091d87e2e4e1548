#pragma once

#include <algorithm>

#include "absl/status/status.h"
#include "kernels/top_k_log_prob/top_k_log_prob.h"

namespace arborist::kernels {

// An edge from z and log(sum exp(z)): what every backend shares.
inline float EdgeLogProb(float z, float log_sum) { return std::clamp(z - log_sum, -1e30f, 0.0f); }

// Internal, naming depth and id of the first logit that is not finite; OK if there is none.
absl::Status NonFiniteDraftLogit(const TopKLogProbArgs& args, int64_t depth);

}  // namespace arborist::kernels
