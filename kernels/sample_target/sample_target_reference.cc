#include <algorithm>
#include <numeric>
#include <vector>

#include "common/base/status_macros.h"
#include "kernels/exact_math/exact_math.h"
#include "kernels/sample_target/row_log_prob.h"
#include "kernels/sample_target/sample_target.h"
#include "kernels/sample_target/sampling_rule.h"

namespace arborist::kernels::reference {
namespace {

// The ids that remain, best first: by (logit, lower id).
std::vector<int32_t> Keep(const float* logits, const std::vector<float>& y, const SamplingParams& params) {
  std::vector<int32_t> ids(y.size());
  std::iota(ids.begin(), ids.end(), 0);
  std::stable_sort(ids.begin(), ids.end(), [&](int32_t a, int32_t b) { return logits[a] > logits[b]; });
  if (params.top_k > 0 && params.top_k < static_cast<int64_t>(ids.size())) {
    ids.resize(params.top_k);
  }
  if (params.top_p < 1) {
    uint64_t total = 0;
    for (int32_t id : ids) {
      total += Mass(ExactExp(y[id]));
    }
    const uint64_t needed = NeededMass(total, params.top_p);
    size_t count = 0;
    for (uint64_t mass = 0; mass < needed; ++count) {
      mass += Mass(ExactExp(y[ids[count]]));
    }
    ids.resize(count);
  }
  std::erase_if(ids, [&](int32_t id) { return ExactExp(y[id]) < params.min_p; });
  return ids;
}

TokenId Choose(const float* logits, int64_t vocabulary, float max, int32_t position,
               const SamplingParams& params) {
  if (params.temperature == 0) {
    return TokenId{static_cast<int32_t>(std::max_element(logits, logits + vocabulary) - logits)};
  }
  std::vector<float> y(vocabulary);
  for (int64_t v = 0; v < vocabulary; ++v) {
    y[v] = (logits[v] - max) / params.temperature;
  }
  std::vector<int32_t> ids = Keep(logits, y, params);
  std::sort(ids.begin(), ids.end());
  const auto value = [&](int32_t id) {
    return y[id] + Gumbel(params.seed, params.sample_index, position, id);
  };
  return TokenId{
      *std::max_element(ids.begin(), ids.end(), [&](int32_t a, int32_t b) { return value(a) < value(b); })};
}

}  // namespace

absl::Status SampleTarget(const SampleTargetArgs& args, StreamView /*stream*/) {
  RETURN_IF_ERROR(ValidateSampleTarget(args));
  const int64_t vocabulary = args.logits.columns;
  absl::Status result;
  for (int64_t row = 0; row < args.logits.rows; ++row) {
    const absl::Status finite = NonFiniteLogit(args, row);
    if (!finite.ok()) {
      ReportBrokenRow(args, row);
      result.Update(finite);
      continue;
    }
    if (args.error.size > 0) {
      args.error[row] = 0;
    }
    const float* logits = args.logits.row(row);
    const float max = *std::max_element(logits, logits + vocabulary) + 0.0f;  // -0 becomes +0
    args.chosen[row] =
        Choose(logits, vocabulary, max, args.position[row], args.params[args.params_index[row]]);
    if (args.log_prob.size > 0) {
      args.log_prob[row] = RowLogProb(logits, vocabulary, args.chosen[row]);
    }
  }
  return result;
}

}  // namespace arborist::kernels::reference
