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

}  // namespace

void PlanStep(const StepLimits& limits, std::span<const int> tree_rows, std::span<const int> prompt_left,
              StepPlan& plan) {
  Check(limits.max_rows > limits.max_tree_rows && limits.max_logits_rows >= limits.max_tree_rows,
        "the largest tree fits a step");
  plan.trees.clear();
  plan.chunks.clear();

  int reserve = 0;
  if (!prompt_left.empty()) {
    reserve = std::clamp(std::min(limits.prefill_chunk, limits.max_rows / 4), 1,
                         limits.max_rows - limits.max_tree_rows);
  }
  const int tree_budget = std::min(limits.max_logits_rows, limits.max_rows - reserve);
  int used = 0;
  for (int i = 0; i < static_cast<int>(tree_rows.size()); ++i) {
    if (used + tree_rows[i] <= tree_budget) {
      plan.trees.push_back(i);
      used += tree_rows[i];
    }
  }

  int left = std::min(limits.prefill_chunk, limits.max_rows - used);
  if (std::accumulate(prompt_left.begin(), prompt_left.end(), int64_t{0}) > left) {
    left = UpToABound(limits, used, left);
  }
  for (int i = 0; i < static_cast<int>(prompt_left.size()) && left > 0; ++i) {
    const int rows = std::min(prompt_left[i], left);
    plan.chunks.push_back({i, rows});
    left -= rows;
  }
}

}  // namespace arborist::verifier
