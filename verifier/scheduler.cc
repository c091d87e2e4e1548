#include "verifier/scheduler.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <numeric>

#include "common/base/check.h"

namespace arborist::verifier {
namespace {

// Of `most` prompt rows beside `used` others, those that end at a bound.
int UpToABound(const StepLimits& limits, int used, int most) {
  const auto above = std::upper_bound(limits.row_bounds.begin(), limits.row_bounds.end(), used + most);
  if (above == limits.row_bounds.begin()) {
    return most;
  }
  const int rows = *std::prev(above) - used;
  return 2 * rows >= most ? rows : most;
}

// Rows that trees leave to prompts: at least one, and the largest tree still fits.
int RowsForPrompts(const StepLimits& limits, std::span<const WaitingPrompt> prompts) {
  return prompts.empty() ? 0
                         : std::clamp(std::min(limits.prefill_chunk, limits.max_rows / 4), 1,
                                      limits.max_rows - limits.max_tree_rows);
}

// Rows with logits that they leave to them. The largest tree may have to wait for one step: then it is the
// older one.
int LogitsForPrompts(const StepLimits& limits, std::span<const WaitingPrompt> prompts) {
  const auto first = std::find_if(prompts.begin(), prompts.end(), [](const WaitingPrompt& prompt) {
    return prompt.scored && prompt.before_trees;
  });
  return first == prompts.end()
             ? 0
             : std::clamp(std::min({limits.prefill_chunk, limits.max_logits_rows / 4, first->left}), 1,
                          limits.max_logits_rows);
}

}  // namespace

void PlanStep(const StepLimits& limits, std::span<const WaitingTree> trees,
              std::span<const WaitingPrompt> prompts, StepPlan& plan) {
  Check(limits.max_rows > limits.max_tree_rows && limits.max_logits_rows >= limits.max_tree_rows,
        "the largest tree fits a step");
  plan.trees.clear();
  plan.chunks.clear();

  const int tree_budget = std::min(limits.max_logits_rows - LogitsForPrompts(limits, prompts),
                                   limits.max_rows - RowsForPrompts(limits, prompts));
  int used = 0;
  int64_t entries = 0;
  for (int i = 0; i < static_cast<int>(trees.size()); ++i) {
    if (used + trees[i].rows <= tree_budget &&
        entries + trees[i].history_entries <= limits.max_history_entries) {
      plan.trees.push_back(i);
      used += trees[i].rows;
      entries += trees[i].history_entries;
    }
  }

  int logits_left = limits.max_logits_rows - used;
  int left = std::min(limits.prefill_chunk, limits.max_rows - used);
  const int64_t wanted =
      std::accumulate(prompts.begin(), prompts.end(), int64_t{0},
                      [](int64_t sum, const WaitingPrompt& prompt) { return sum + prompt.left; });
  if (wanted > left) {
    left = UpToABound(limits, used, left);
  }
  for (int i = 0; i < static_cast<int>(prompts.size()) && left > 0; ++i) {
    const bool scored = prompts[i].scored;
    const int rows = std::min({prompts[i].left, left, scored ? logits_left : left});
    if (rows > 0) {
      plan.chunks.push_back({i, rows, scored});
      left -= rows;
      logits_left -= scored ? rows : 0;
    }
  }
  std::sort(plan.chunks.begin(), plan.chunks.end(), [](const StepPlan::Share& a, const StepPlan::Share& b) {
    return a.scored != b.scored ? a.scored : a.index < b.index;
  });
}

}  // namespace arborist::verifier
