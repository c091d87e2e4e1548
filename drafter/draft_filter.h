#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "common/base/ids.h"
#include "common/grammar/constraint.h"
#include "common/tree/token_tree.h"
#include "drafter/proposer.h"

namespace arborist::drafter {

// Keeps the drafts of one sequence to the form that its output must have: what violates it would be verified
// in vain. It only drops nodes, so text never depends on it. One thread at a time.
class DraftFilter {
 public:
  // `output`: what is committed of it already, after `prompt`. Without a constraint nothing is filtered.
  DraftFilter(std::shared_ptr<const Constraint> constraint, std::span<const TokenId> prompt,
              std::span<const TokenId> output);

  // These have been committed.
  void Append(std::span<const TokenId> tokens);

  // What to ask a proposer for so that enough is left of it. A chain comes from a tree: where its first
  // candidate is not allowed the next one may be.
  ProposeArgs Wider(const ProposeArgs& args) const;
  // Drops what violates the constraint, or stands behind a token that ends the sequence, with all that is
  // below; then what goes beyond `args`: of a chain all but the best path, else the nodes after the budget.
  TokenTree Filter(const TokenTree& tree, const ProposeArgs& args) const;

 private:
  const std::shared_ptr<const Constraint> constraint_;
  std::optional<Constraint::State> state_;  // nothing: nothing is filtered
};

}  // namespace arborist::drafter
