#include "verifier/constraint_masks.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/math.h"
#include "common/base/status_macros.h"

namespace arborist::verifier {
namespace {

// Of the fields that a constraint comes from.
constexpr char kFieldPrefix[] = "sequence.sampling.";

// Of those within the vocabulary.
std::vector<uint32_t> BitsOf(std::span<const TokenId> ids, int64_t vocabulary) {
  std::vector<uint32_t> bits(static_cast<size_t>(CeilDiv(vocabulary, int64_t{32})), 0);
  for (const TokenId id : ids) {
    if (Raw(id) >= 0 && Raw(id) < vocabulary) {
      bits[Raw(id) / 32] |= uint32_t{1} << (Raw(id) % 32);
    }
  }
  return bits;
}

}  // namespace

ConstraintMasks::ConstraintMasks(std::shared_ptr<const ConstraintRules> rules,
                                 std::span<const TokenId> prompt)
    : rules_(std::move(rules)), state_(rules_->constraint->Start(prompt)) {}

void ConstraintMasks::Commit(std::span<const TokenId> tokens) {
  for (const TokenId token : tokens) {
    bool too_much = false;
    std::optional<Constraint::State> next = rules_->constraint->Advance(state_, token, &too_much);
    if (too_much && violation_.ok()) {
      violation_ = TooMuchWork();
    } else if (!next.has_value() && violation_.ok()) {
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

ConstraintMasks::RunEnd ConstraintMasks::EndOfRun(std::span<const int32_t> path, TokenId bonus) const {
  Check(tree_ != nullptr, "a step saw the tree");
  for (size_t i = 1; i < path.size(); ++i) {
    if (tree_->is_over(path[i])) {
      return {.over = static_cast<int>(i)};
    }
    if (tree_->is_too_much(path[i])) {
      return {.unknown = static_cast<int>(i)};
    }
  }
  const std::optional<Constraint::State>& last = tree_->state(path.back());
  if (!last.has_value()) {
    return {};  // its root allowed nothing, as status() says
  }
  const auto run = static_cast<int>(path.size());
  const std::optional<Constraint::State> next = rules_->constraint->Advance(*last, bonus);
  // Where it is too much work to say, the masks of the next round say it.
  const bool is_over = next.has_value() && rules_->IsOver(*next, output_tokens_ + run).value_or(false);
  return {.over = is_over ? run : 0};
}

absl::Status ConstraintMasks::status() const {
  if (tree_ != nullptr && tree_->is_too_much(0)) {
    return TooMuchWork();
  }
  return tree_ != nullptr && tree_->is_over(0) ? NothingMayFollow() : violation_;
}

absl::Status ConstraintMasks::CheckGoesOn() const {
  RETURN_IF_ERROR(violation_);
  return rules_->IsOver(state_, output_tokens_).value_or(false) ? NothingMayFollow() : absl::OkStatus();
}

absl::Status ConstraintMasks::NothingMayFollow() const {
  return absl::InvalidArgumentError(absl::StrCat(kFieldPrefix, rules_->constraint->field(),
                                                 "=(nothing may come after ", output_tokens_,
                                                 " tokens of output), expected one that with bad_words, "
                                                 "allowed_token_ids and min_tokens leaves a token"));
}

absl::Status ConstraintMasks::TooMuchWork() const {
  return absl::InvalidArgumentError(
      absl::StrCat(kFieldPrefix, rules_->constraint->field(), "=(too much work after ", output_tokens_,
                   " tokens of output), expected fewer alternatives that begin alike"));
}

std::shared_ptr<const ConstraintRules> RulesOf(const OpenArgs& args, int64_t vocabulary) {
  auto rules = std::make_shared<ConstraintRules>();
  rules->constraint = args.constraint;
  rules->min_tokens = args.controls.min_tokens;
  if (!args.controls.allowed_token_ids.empty()) {
    rules->allowed = BitsOf(args.controls.allowed_token_ids, vocabulary);
  }
  rules->stops = BitsOf(args.constraint->stop_ids(), vocabulary);
  return rules;
}

}  // namespace arborist::verifier
