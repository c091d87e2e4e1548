#include "verifier/tree_masks.h"

#include <utility>

namespace arborist::verifier {

TreeMasks::TreeMasks(std::shared_ptr<const ConstraintRules> rules, const Constraint::State& root,
                     int64_t output_tokens, std::span<const TokenId> token, std::span<const int32_t> parent)
    : rules_(std::move(rules)),
      token_(token.begin(), token.end()),
      parent_(parent.begin(), parent.end()),
      output_tokens_(token.size(), output_tokens),
      state_(token.size()),
      mask_(token.size()),
      is_over_(token.size(), false) {
  state_[0] = root;
  has_state_ = true;
}

std::optional<Constraint::State> TreeMasks::StateOf(int node) const {
  const std::optional<Constraint::State>& parent = state_[parent_[node]];
  return parent.has_value() ? rules_->constraint->Advance(*parent, token_[node]) : std::nullopt;
}

bool TreeMasks::Make(int uncached) {
  const Constraint& constraint = *rules_->constraint;
  while (made_ < nodes()) {
    const int node = made_;
    if (!has_state_) {
      state_[node] = StateOf(node);
      output_tokens_[node] = output_tokens_[parent_[node]] + 1;
      has_state_ = true;
    }
    if (state_[node].has_value()) {
      is_over_[node] = rules_->IsOver(*state_[node], output_tokens_[node]);
      if (!is_over_[node]) {
        mask_[node] = constraint.CachedTokens(*state_[node]);
        if (mask_[node] == nullptr && uncached-- <= 0) {
          return false;
        }
        if (mask_[node] == nullptr) {
          mask_[node] = constraint.AllowedTokens(*state_[node]);
        }
      }
    }
    ++made_;
    has_state_ = false;
  }
  return true;
}

}  // namespace arborist::verifier
