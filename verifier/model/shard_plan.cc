#include "verifier/model/shard_plan.h"

#include <algorithm>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/math.h"

namespace arborist::verifier {

absl::StatusOr<ShardPlan> ShardPlan::Make(const ModelConfig& config, int rank, int ranks) {
  if (ranks != 1 && ranks != 2 && ranks != 4 && ranks != 8) {
    return absl::InvalidArgumentError(absl::StrCat("ranks=", ranks, ", expected 1, 2, 4 or 8"));
  }
  if (config.heads % ranks != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("ranks=", ranks, ", expected a divisor of num_attention_heads=", config.heads));
  }
  Check(rank >= 0 && rank < ranks, "a rank is inside its group");
  ShardPlan plan;
  plan.rank_ = rank;
  plan.ranks_ = ranks;
  plan.heads_ = config.heads;
  plan.vocabulary_ = config.vocab_size;
  plan.vocabulary_slice_ = CeilDiv(config.vocab_size, ranks);
  return plan;
}

ShardPlan::Range ShardPlan::Inputs(int64_t full_inputs) const {
  const int64_t begin = kernels::SegmentBegin(full_inputs, first_segment());
  return {begin, kernels::SegmentBegin(full_inputs, first_segment() + segment_count()) - begin};
}

ShardPlan::Range ShardPlan::vocabulary() const {
  const int64_t begin = std::min(rank_ * vocabulary_slice_, vocabulary_);
  return {begin, std::min(vocabulary_slice_, vocabulary_ - begin)};
}

}  // namespace arborist::verifier
