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
  std::vector<uint32_t> stops;    // bits of the stop ids; empty: none
  int min_tokens = 0;             // no stop id is chosen before so many output tokens

  // Nothing may come after a text of so many output tokens, after which the constraint allows `mask`: the
  // sequence is over.
  bool IsOver(const Constraint::Mask& mask, int64_t output_tokens) const;
  // The same where no mask is made: the text led to `state`. Looks for one token that may come; nothing: that
  // is too much work.
  std::optional<bool> IsOver(const Constraint::State& state, int64_t output_tokens) const;
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
  // Null: the path violates the constraint, nothing may follow, or it is too much work. All of these once all
  // are made.
  const uint32_t* mask(int node) const { return mask_[node] == nullptr ? nullptr : mask_[node]->data(); }
  // Nothing where the path violates the constraint, or where what follows one of its nodes is not known.
  const std::optional<Constraint::State>& state(int node) const { return state_[node]; }
  bool is_over(int node) const { return is_over_[node]; }
  // What may follow is not known, since it is too much work or others of the tree were: whatever is chosen
  // after the node does not count.
  bool is_too_much(int node) const { return is_too_much_[node]; }

 private:
  bool Make(int uncached);
  void Arrive(int node);  // by its token from its parent

  const std::shared_ptr<const ConstraintRules> rules_;
  const std::vector<TokenId> token_;
  const std::vector<int32_t> parent_;
  std::vector<int64_t> output_tokens_;  // at each node
  std::vector<std::optional<Constraint::State>> state_;
  std::vector<std::shared_ptr<const Constraint::Mask>> mask_;
  std::vector<bool> is_over_;
  std::vector<bool> is_too_much_;
  int made_ = 0;
  int in_vain_ = 0;         // masks that were too much work
  bool has_state_ = false;  // of node `made_`
};

}  // namespace arborist::verifier
