#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

namespace arborist::verifier {

// What one step may hold. A tree of max_tree_rows fits, and then at least one row of a prompt.
struct StepLimits {
  int max_rows = 0;         // of all kinds
  int max_logits_rows = 0;  // of trees and scored prompts
  int max_tree_rows = 0;    // of one tree, its root included
  int prefill_chunk = 0;    // prompt rows in one step
  // Of all controlled trees; that of one fits.
  int64_t max_history_entries = std::numeric_limits<int64_t>::max();
  // The sizes that steps with prompt rows are padded to, ascending; empty: to none.
  std::vector<int> row_bounds{};
};

struct WaitingTree {
  int rows = 0;                 // at least 1
  int64_t history_entries = 0;  // of its controls
};

struct WaitingPrompt {
  int left = 0;               // rows, at least 1
  bool scored = false;        // they have logits
  bool before_trees = false;  // it has waited for longer than any of the trees
};

struct StepPlan {
  struct Share {
    int index;  // into the list of prompts
    int rows;
    bool scored;
  };
  std::vector<int> trees;     // indices into the list of trees
  std::vector<Share> chunks;  // scored ones first
};

// Chooses the next step: trees first, whole and oldest first (one whose rows or history do not fit waits,
// smaller ones may pass it, and it is first in the next step); then prompt rows, oldest first. While a prompt
// waits, trees leave it a quarter of the rows, so neither starves the other. A step with less than is left of
// the prompts ends at a bound, so that nothing is padded, unless that halves its prompt rows: how a prompt is
// cut changes no result. A scored prompt takes rows with logits that trees leave; only where one has waited
// for longer than all trees, they leave it a quarter. Both lists come oldest first; `plan` keeps its memory.
void PlanStep(const StepLimits& limits, std::span<const WaitingTree> trees,
              std::span<const WaitingPrompt> prompts, StepPlan& plan);

}  // namespace arborist::verifier
