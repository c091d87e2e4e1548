#include "verifier/constraint_masks.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/math.h"
#include "common/base/status_macros.h"

namespace arborist::verifier {

ConstraintMasks::ConstraintMasks(std::shared_ptr<const ConstraintRules> rules)
    : rules_(std::move(rules)), state_(rules_->constraint->Start()) {}

void ConstraintMasks::Commit(std::span<const TokenId> tokens) {
  for (const TokenId token : tokens) {
    std::optional<Constraint::State> next = rules_->constraint->Advance(state_, token);
    if (!next.has_value() && violation_.ok()) {
      violation_ = absl::InvalidArgumentError(
          absl::StrCat("output_so_far[", output_tokens_, "]=", Raw(token),
                       ", expected a token that the constraint and bad_words allow there"));
    }
    state_ = next.value_or(state_);
    ++output_tokens_;
  }
  tree_ = nullptr;
}

std::shared_ptr<TreeMasks> ConstraintMasks::Begin(std::span<const TokenId> token,
                                                  std::span<const int32_t> parent) {
  tree_ = std::make_shared<TreeMasks>(rules_, state_, output_tokens_, token, parent);
  return tree_;
}

void ConstraintMasks::OfTree(std::span<const TokenId> token, std::span<const int32_t> parent,
                             std::span<const uint32_t*> mask) {
  if (tree_ == nullptr) {
    Begin(token, parent);
  }
  Check(tree_->nodes() == static_cast<int>(token.size()), "the masks are of the tree in the step");
  while (!tree_->MakeOneMore()) {  // at once if they are made
  }
  for (int node = 0; node < tree_->nodes(); ++node) {
    mask[node] = tree_->mask(node);
  }
}

int ConstraintMasks::EndOfRun(std::span<const int32_t> path, TokenId bonus) const {
  Check(tree_ != nullptr, "a step saw the tree");
  for (size_t i = 1; i < path.size(); ++i) {
    if (tree_->is_over(path[i])) {
      return static_cast<int>(i);
    }
  }
  const std::optional<Constraint::State>& last = tree_->state(path.back());
  if (!last.has_value()) {
    return 0;  // the constraint has failed, as status() says
  }
  const auto run = static_cast<int64_t>(path.size());
  const std::optional<Constraint::State> next = rules_->constraint->Advance(*last, bonus);
  return next.has_value() && rules_->IsOver(*next, output_tokens_ + run) ? static_cast<int>(run) : 0;
}

absl::Status ConstraintMasks::status() const {
  RETURN_IF_ERROR(rules_->constraint->status());
  return violation_;
}

absl::Status ConstraintMasks::CheckGoesOn() const {
  const bool is_over = rules_->IsOver(state_, output_tokens_);
  RETURN_IF_ERROR(status());
  return is_over
             ? absl::InvalidArgumentError(absl::StrCat(
                   "constraint=(nothing may come after ", output_tokens_,
                   " tokens of output), expected one that with bad_words, allowed_token_ids and min_tokens "
                   "leaves a token"))
             : absl::OkStatus();
}

std::shared_ptr<const ConstraintRules> RulesOf(const OpenArgs& args, int64_t vocabulary) {
  auto rules = std::make_shared<ConstraintRules>();
  rules->constraint = args.constraint;
  rules->min_tokens = args.controls.min_tokens;
  if (!args.controls.allowed_token_ids.empty()) {
    rules->allowed.assign(static_cast<size_t>(CeilDiv(vocabulary, int64_t{32})), 0);
    for (const TokenId id : args.controls.allowed_token_ids) {
      rules->allowed[Raw(id) / 32] |= uint32_t{1} << (Raw(id) % 32);
    }
  }
  return rules;
}

}  // namespace arborist::verifier
