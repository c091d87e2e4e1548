#include "verifier/tree_masks.h"

#include <utility>

namespace arborist::verifier {
namespace {

// Masks of one tree that are tried in vain: each takes tenths of a second, which others wait for. Nodes
// beyond them that have none are not known either, so the next round begins at them.
constexpr int kMostInVain = 4;

}  // namespace

bool ConstraintRules::IsOver(const Constraint::Mask& mask, int64_t output_tokens) const {
  for (size_t word = 0; word < mask.size(); ++word) {
    uint32_t bits = mask[word];
    if (!allowed.empty()) {
      bits &= word < allowed.size() ? allowed[word] : 0;
    }
    if (output_tokens < min_tokens && word < stops.size()) {
      bits &= ~stops[word];
    }
    if (bits != 0) {
      return false;
    }
  }
  return true;
}

std::optional<bool> ConstraintRules::IsOver(const Constraint::State& state, int64_t output_tokens) const {
  if (const auto cached = constraint->CachedTokens(state); cached != nullptr) {
    return IsOver(*cached, output_tokens);
  }
  const std::optional<bool> any = constraint->AllowsAny(state, allowed, output_tokens < min_tokens);
  return any.has_value() ? std::optional(!*any) : std::nullopt;
}

TreeMasks::TreeMasks(std::shared_ptr<const ConstraintRules> rules, const Constraint::State& root,
                     int64_t output_tokens, std::span<const TokenId> token, std::span<const int32_t> parent)
    : rules_(std::move(rules)),
      token_(token.begin(), token.end()),
      parent_(parent.begin(), parent.end()),
      output_tokens_(token.size(), output_tokens),
      state_(token.size()),
      mask_(token.size()),
      is_over_(token.size(), false),
      is_too_much_(token.size(), false) {
  state_[0] = root;
  has_state_ = true;
}

void TreeMasks::Arrive(int node) {
  const int32_t parent = parent_[node];
  if (state_[parent].has_value() && !is_too_much_[parent]) {  // else the node never counts
    bool too_much = false;
    state_[node] = rules_->constraint->Advance(*state_[parent], token_[node], &too_much);
    is_too_much_[node] = too_much;
  }
  output_tokens_[node] = output_tokens_[parent] + 1;
  has_state_ = true;
}

bool TreeMasks::Make(int uncached) {
  const Constraint& constraint = *rules_->constraint;
  while (made_ < nodes()) {
    const int node = made_;
    if (!has_state_) {
      Arrive(node);
    }
    if (state_[node].has_value()) {
      std::shared_ptr<const Constraint::Mask> mask = constraint.CachedTokens(*state_[node]);
      if (mask == nullptr && in_vain_ < kMostInVain) {
        if (uncached-- <= 0) {
          return false;
        }
        mask = constraint.AllowedTokens(*state_[node]);
        in_vain_ += mask == nullptr ? 1 : 0;
      }
      is_too_much_[node] = mask == nullptr;
      is_over_[node] = mask != nullptr && rules_->IsOver(*mask, output_tokens_[node]);
      mask_[node] = is_over_[node] ? nullptr : std::move(mask);
    }
    ++made_;
    has_state_ = false;
  }
  return true;
}

}  // namespace arborist::verifier
