#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "absl/status/status.h"
#include "common/base/ids.h"
#include "common/grammar/constraint.h"
#include "verifier/node_masks.h"
#include "verifier/tree_masks.h"
#include "verifier/verifier.h"

namespace arborist::verifier {

// The form that one sequence's output must have: follows its text, and masks what would violate it. Guarded
// as the sequence is.
class ConstraintMasks final : public NodeMasks {
 public:
  explicit ConstraintMasks(std::shared_ptr<const ConstraintRules> rules);

  void Commit(std::span<const TokenId> tokens) override;
  // Of the tree that began; made here if none did or if it is another.
  void OfTree(std::span<const TokenId> token, std::span<const int32_t> parent,
              std::span<const uint32_t*> mask) override;

  // A round begins: what is to be made, by whoever has the time, before a step sees the tree.
  std::shared_ptr<TreeMasks> Begin(std::span<const TokenId> token, std::span<const int32_t> parent);

  // Of the tree that OfTree saw: how many tokens of the run (the path's after the root, then the bonus) are
  // committed until nothing may follow; 0: more may follow after all of them.
  int EndOfRun(std::span<const int32_t> path, TokenId bonus) const;

  // Not OK: what was committed violates the constraint (only output_so_far can), or the constraint is too
  // much work.
  absl::Status status() const;
  // The same, or nothing may follow what was committed.
  absl::Status CheckGoesOn() const;

 private:
  const std::shared_ptr<const ConstraintRules> rules_;
  Constraint::State state_;
  int64_t output_tokens_ = 0;
  std::shared_ptr<TreeMasks> tree_;
  absl::Status violation_;
};

// The rules of an Open with a constraint, over a vocabulary of this many ids.
std::shared_ptr<const ConstraintRules> RulesOf(const OpenArgs& args, int64_t vocabulary);

}  // namespace arborist::verifier
