#include <algorithm>
#include <numeric>
#include <vector>

#include "common/base/status_macros.h"
#include "kernels/exact_math/exact_math.h"
#include "kernels/top_k_log_prob/candidate_rule.h"
#include "kernels/top_k_log_prob/top_k_log_prob.h"

namespace arborist::kernels::reference {
namespace {

std::vector<float> Ranked(const TopKLogProbArgs& args, int64_t row) {
  std::vector<float> x(args.logits.columns);
  const float* logits = Fp32Row(args.logits, row, x.data());
  std::copy(logits, logits + x.size(), x.begin());
  const DraftRow draft = DraftRowOf(args, row);
  const TopKParams& params = draft.params;
  if (params.temperature == 0) {
    return x;
  }
  const float max = *std::max_element(x.begin(), x.end()) + 0.0f;  // -0 becomes +0
  for (size_t v = 0; v < x.size(); ++v) {
    x[v] = (x[v] - max) / params.temperature +
           Gumbel(params.seed, params.sample_index, draft.position(), static_cast<int32_t>(v));
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
  for (int64_t row = 0; row < args.logits.rows; ++row) {
    const DraftRow draft = DraftRowOf(args, row);
    if (!draft.wanted()) {
      continue;
    }
    RETURN_IF_ERROR(NonFiniteDraftLogit(args, row));
    const std::vector<float> x = Ranked(args, row);
    const float max = *std::max_element(x.begin(), x.end()) + 0.0f;
    std::vector<float> z = x;
    for (float& value : z) {
      value = (value - max) * draft.params.beta;
    }
    const float log_sum = LogSumExp(z);
    std::vector<int32_t> ids(x.size());
    std::iota(ids.begin(), ids.end(), 0);
    std::stable_sort(ids.begin(), ids.end(), [&](int32_t a, int32_t b) { return x[a] > x[b]; });
    for (int i = 0; i < draft.params.k; ++i) {
      args.token.row(row)[i] = TokenId{ids[i]};
      args.log_prob.row(row)[i] = EdgeLogProb(z[ids[i]], log_sum);
    }
  }
  return absl::OkStatus();
}

}  // namespace arborist::kernels::reference
