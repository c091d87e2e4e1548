#include <algorithm>
#include <numeric>
#include <vector>

#include "common/base/status_macros.h"
#include "kernels/exact_math/exact_math.h"
#include "kernels/top_k_log_prob/candidate_rule.h"
#include "kernels/top_k_log_prob/top_k_log_prob.h"

namespace arborist::kernels::reference {
namespace {

std::vector<float> Ranked(const TopKLogProbArgs& args, int64_t depth) {
  const float* logits = args.logits.row(depth);
  std::vector<float> x(logits, logits + args.logits.columns);
  if (args.temperature == 0) {
    return x;
  }
  const float max = *std::max_element(x.begin(), x.end()) + 0.0f;  // -0 becomes +0
  for (size_t v = 0; v < x.size(); ++v) {
    x[v] = (x[v] - max) / args.temperature + Gumbel(args.seed, args.sample_index,
                                                    args.first_position + static_cast<int32_t>(depth),
                                                    static_cast<int32_t>(v));
  }
  return x;
}

float LogSumExp(const std::vector<float>& z) {
  float lanes[16] = {};
  for (size_t v = 0; v < z.size(); ++v) {
    lanes[v % 16] += ExactExp(z[v]);
  }
  for (int half : {8, 4, 2, 1}) {
    for (int lane = 0; lane < half; ++lane) {
      lanes[lane] += lanes[lane + half];
    }
  }
  return ExactLog(lanes[0]);
}

}  // namespace

absl::Status TopKLogProb(const TopKLogProbArgs& args, StreamView /*stream*/) {
  RETURN_IF_ERROR(ValidateTopKLogProb(args));
  for (int64_t depth = 0; depth < args.logits.rows; ++depth) {
    RETURN_IF_ERROR(NonFiniteDraftLogit(args, depth));
    const std::vector<float> x = Ranked(args, depth);
    const float max = *std::max_element(x.begin(), x.end()) + 0.0f;
    std::vector<float> z = x;
    for (float& value : z) {
      value = (value - max) * args.beta;
    }
    const float log_sum = LogSumExp(z);
    std::vector<int32_t> ids(x.size());
    std::iota(ids.begin(), ids.end(), 0);
    std::stable_sort(ids.begin(), ids.end(), [&](int32_t a, int32_t b) { return x[a] > x[b]; });
    for (int i = 0; i < args.k; ++i) {
      args.token.row(depth)[i] = TokenId{ids[i]};
      args.log_prob.row(depth)[i] = EdgeLogProb(z[ids[i]], log_sum);
    }
  }
  return absl::OkStatus();
}

}  // namespace arborist::kernels::reference
