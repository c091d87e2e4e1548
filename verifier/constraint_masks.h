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
  explicit ConstraintMasks(std::shared_ptr<const ConstraintRules> rules,
                           std::span<const TokenId> prompt = {});

  void Commit(std::span<const TokenId> tokens) override;
  // Of the tree that began; made here if none did or if it is another.
  void OfTree(std::span<const TokenId> token, std::span<const int32_t> parent,
              std::span<const uint32_t*> mask) override;

  // A round begins: what is to be made, by whoever has the time, before a step sees the tree.
  std::shared_ptr<TreeMasks> Begin(std::span<const TokenId> token, std::span<const int32_t> parent);

  // How many tokens of a run (the path's after the root, then the bonus) are committed.
  struct RunEnd {
    int over = 0;     // after so many nothing may follow; 0: more may follow after all of them
    int unknown = 0;  // after so many it is too much work to know what may: the next round tries again from
                      // there; 0: it is known
  };
  // Of the tree that OfTree saw; at most one of both is not 0.
  RunEnd EndOfRun(std::span<const int32_t> path, TokenId bonus) const;

  // Not OK: what was committed violates the constraint (only output_so_far can), or it is too much work to
  // know what may follow it. The masks of the round, if one began, are made.
  absl::Status status() const;
  // The same before any round, or nothing may follow what was committed.
  absl::Status CheckGoesOn() const;

 private:
  absl::Status NothingMayFollow() const;
  absl::Status TooMuchWork() const;

  const std::shared_ptr<const ConstraintRules> rules_;
  Constraint::State state_;
  int64_t output_tokens_ = 0;
  std::shared_ptr<TreeMasks> tree_;
  absl::Status violation_;
};

// The rules of an Open with a constraint, over a vocabulary of this many ids.
std::shared_ptr<const ConstraintRules> RulesOf(const OpenArgs& args, int64_t vocabulary);

}  // namespace arborist::verifier
