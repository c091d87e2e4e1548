#pragma once

#include <cstdint>
#include <span>

#include "common/base/ids.h"
#include "kernels/logit_controls/logit_controls.h"
#include "verifier/node_masks.h"
#include "verifier/verifier.h"

namespace arborist::verifier {

// What acts on the choices of one sequence of a step besides its sampling parameters, and what is told of
// them. Raw logits and K/V never change. The default changes and tells nothing.
struct StepControls {
  // Penalties; `entries` is not read.
  kernels::SequenceControls penalties = {};
  // Ascending by token: biases, and counts over all that is committed, the tree's root included. Nodes below
  // the root are counted by the step.
  std::span<const kernels::LogitEntry> history = {};
  // Whether a node below the root counts: penalties other than those that change nothing.
  bool counts_nodes = false;
  // Not chosen for positions of prompt + output before `stops_from`.
  std::span<const TokenId> stop_ids = {};
  int32_t stops_from = 0;
  // All of them hold.
  std::span<NodeMasks* const> masks = {};
  // The most probable tokens told beside each chosen one, [0, kMaxTopLogProbs].
  int32_t top_log_probs = 0;
};

}  // namespace arborist::verifier
