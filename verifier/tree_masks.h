#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "common/base/ids.h"
#include "common/grammar/constraint.h"

namespace arborist::verifier {

// What decides, beside the logits, whether a token may follow: immutable, shared by a sequence's rounds.
struct ConstraintRules {
  std::shared_ptr<const Constraint> constraint;
  std::vector<uint32_t> allowed;  // bits of the ids that the owner allows; empty: all
  int min_tokens = 0;             // no stop id is chosen before so many output tokens

  // Nothing may come after the text that led to `state`, of so many output tokens: the sequence is over.
  bool IsOver(const Constraint::State& state, int64_t output_tokens) const {
    return !constraint->AllowsAny(state, allowed, output_tokens < min_tokens);
  }
};

// What the constraint says of every node of one tree: where its path has led, and what may be chosen after
// it. Made node by node, since a mask that is not cached takes milliseconds. One thread at a time.
class TreeMasks {
 public:
  // The root stands at `root`, after `output_tokens` of output.
  TreeMasks(std::shared_ptr<const ConstraintRules> rules, const Constraint::State& root,
            int64_t output_tokens, std::span<const TokenId> token, std::span<const int32_t> parent);

  // Goes on. True: all are made; else the next one is not cached.
  bool MakeCached() { return Make(0); }
  // The same after one that is not cached.
  bool MakeOneMore() { return Make(1); }

  int nodes() const { return static_cast<int>(token_.size()); }
  // Null: the path violates the constraint, or nothing may follow. All of these once all are made.
  const uint32_t* mask(int node) const { return mask_[node] == nullptr ? nullptr : mask_[node]->data(); }
  // Nothing where the path violates the constraint.
  const std::optional<Constraint::State>& state(int node) const { return state_[node]; }
  bool is_over(int node) const { return is_over_[node]; }

 private:
  bool Make(int uncached);
  std::optional<Constraint::State> StateOf(int node) const;

  const std::shared_ptr<const ConstraintRules> rules_;
  const std::vector<TokenId> token_;
  const std::vector<int32_t> parent_;
  std::vector<int64_t> output_tokens_;  // at each node
  std::vector<std::optional<Constraint::State>> state_;
  std::vector<std::shared_ptr<const Constraint::Mask>> mask_;
  std::vector<bool> is_over_;
  int made_ = 0;
  bool has_state_ = false;  // of node `made_`
};

}  // namespace arborist::verifier
