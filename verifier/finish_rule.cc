#include "verifier/finish_rule.h"

#include <algorithm>

namespace arborist::verifier {

RunCut CutRun(std::span<const TokenId> run, const FinishRule& rule) {
  for (int i = 0; i < static_cast<int>(run.size()); ++i) {
    const int kept = i + 1;
    if (std::find(rule.stop_ids.begin(), rule.stop_ids.end(), run[i]) != rule.stop_ids.end()) {
      return {kept, FinishReason::kStopId};
    }
    if (kept == rule.constraint_end) {
      return {kept, FinishReason::kConstraint};
    }
    if (kept >= rule.output_left) {
      return {kept, FinishReason::kMaxTokens};
    }
    if (kept >= rule.context_left) {
      return {kept, FinishReason::kContextLimit};
    }
    if (kept == rule.constraint_cut) {
      return {kept, FinishReason::kNone};
    }
  }
  return {static_cast<int>(run.size()), FinishReason::kNone};
}

}  // namespace arborist::verifier
