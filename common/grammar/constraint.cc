#include "common/grammar/constraint.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/check.h"
#include "common/base/status_macros.h"
#include "common/grammar/json_schema.h"
#include "common/grammar/regex.h"

namespace arborist {
namespace {

absl::StatusOr<std::optional<ByteAutomaton>> CompileGrammar(const ConstraintSpec& spec,
                                                            const TokenVocabulary& vocabulary) {
  if (spec.json_schema.empty() && spec.regex.empty()) {
    return std::nullopt;
  }
  if (!spec.json_schema.empty() && !spec.regex.empty()) {
    return absl::InvalidArgumentError("regex: stands beside json_schema, expected one of them");
  }
  const std::string what = spec.regex.empty() ? "json_schema" : "regex";
  ByteGrammar grammar;
  if (spec.regex.empty()) {
    RETURN_IF_ERROR(AddJsonSchema(grammar, spec.json_schema));
  } else {
    const int32_t rule = grammar.DeclareRule();
    ASSIGN_OR_RETURN(const ByteGrammar::Part body,
                     AddRegex(grammar, spec.regex, RegexMatch::kWhole, TextEncoding::kUtf8));
    grammar.Define(rule, body);
    grammar.set_root(rule);
  }
  ASSIGN_OR_RETURN(TrimmedGrammar trimmed, TrimmedGrammar::Create(std::move(grammar), what));
  for (int byte = 0; byte < 256; ++byte) {
    if (trimmed.UsesByte(static_cast<uint8_t>(byte)) && !vocabulary.HasByte(static_cast<uint8_t>(byte))) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "%s: needs byte 0x%02x, but no token of the vocabulary is just that byte", what, byte));
    }
  }
  return std::optional<ByteAutomaton>(std::in_place, std::move(trimmed));
}

}  // namespace

absl::StatusOr<std::shared_ptr<const Constraint>> Constraint::Compile(
    const ConstraintSpec& spec, std::shared_ptr<const TokenVocabulary> vocabulary) {
  ASSIGN_OR_RETURN(ForbiddenStrings forbidden, ForbiddenStrings::Create(spec.bad_words));
  ASSIGN_OR_RETURN(std::optional<ByteAutomaton> grammar, CompileGrammar(spec, *vocabulary));
  std::vector<TokenId> stop_ids = spec.stop_ids;
  std::sort(stop_ids.begin(), stop_ids.end());
  return std::shared_ptr<const Constraint>(
      new Constraint(std::move(grammar), std::move(forbidden), std::move(vocabulary), std::move(stop_ids)));
}

Constraint::Constraint(std::optional<ByteAutomaton> grammar, ForbiddenStrings forbidden,
                       std::shared_ptr<const TokenVocabulary> vocabulary, std::vector<TokenId> stop_ids)
    : vocabulary_(std::move(vocabulary)),
      forbidden_(std::move(forbidden)),
      stop_ids_(std::move(stop_ids)),
      has_forbidden_(!forbidden_.empty()),
      has_grammar_(grammar.has_value()),
      max_masks_(std::max<size_t>(1, kMaskCacheBytes / (sizeof(uint32_t) * (vocabulary_->words() + 1)))),
      grammar_(std::move(grammar)) {}

Constraint::State Constraint::Start() const {
  const std::lock_guard lock(mutex_);
  State state;
  if (has_grammar_) {
    state.grammar = grammar_->Start();
  }
  return state;
}

Constraint::Step Constraint::Look(const State& state) const {
  if (!has_grammar_) {
    return {0, state.forbidden};
  }
  grammar_->ForgetIfFull();
  return {grammar_->Id(state.grammar), state.forbidden};
}

inline bool Constraint::Walk(Step& step, uint8_t byte) const {
  if (has_forbidden_) {
    step.forbidden = forbidden_.Next(step.forbidden, byte);
    if (step.forbidden == ForbiddenStrings::kDead) {
      return false;
    }
  }
  if (has_grammar_) {
    step.grammar = grammar_->Next(step.grammar, byte);
    return step.grammar != ByteAutomaton::kDead;
  }
  return true;
}

bool Constraint::AcceptsAt(const Step& step) const {
  return !has_grammar_ || grammar_->Accepts(step.grammar);
}

bool Constraint::IsStop(TokenId token) const {
  return std::binary_search(stop_ids_.begin(), stop_ids_.end(), token);
}

bool Constraint::Accepts(const State& state) const {
  const std::lock_guard lock(mutex_);
  return AcceptsAt(Look(state));
}

bool Constraint::IsFinal(const State& state) const {
  const std::lock_guard lock(mutex_);
  const Step here = Look(state);
  for (int byte = 0; byte < 256; ++byte) {
    Step step = here;
    if (Walk(step, static_cast<uint8_t>(byte))) {
      return false;
    }
  }
  return true;
}

std::optional<Constraint::State> Constraint::Advance(const State& state, TokenId token) const {
  const int32_t id = Raw(token);
  const std::lock_guard lock(mutex_);
  Step step = Look(state);
  if (IsStop(token)) {
    return AcceptsAt(step) ? std::optional(state) : std::nullopt;
  }
  if (id < 0 || id >= vocabulary_->size()) {
    return std::nullopt;
  }
  const std::string& bytes = vocabulary_->bytes(id);
  if (bytes.empty()) {  // special
    return has_grammar_ ? std::nullopt : std::optional(state);
  }
  for (const char byte : bytes) {
    if (!Walk(step, static_cast<uint8_t>(byte))) {
      return std::nullopt;
    }
  }
  State next;
  next.forbidden = step.forbidden;
  if (has_grammar_) {
    next.grammar = grammar_->Hold(step.grammar);
  }
  return next;
}

std::shared_ptr<const Constraint::Mask> Constraint::AllowedTokens(const State& state) const {
  const std::lock_guard lock(mutex_);
  const Step step = Look(state);
  std::pair<StackSet::Pointer, int32_t> key;
  if (has_grammar_) {
    key.first = grammar_->Hold(step.grammar).set;
  }
  key.second = step.forbidden;
  if (const auto found = masks_.find(key); found != masks_.end()) {
    return found->second;
  }
  auto mask = std::make_shared<const Mask>(Compute(step));
  if (masks_.size() >= max_masks_) {
    masks_.clear();
  }
  masks_.emplace(std::move(key), mask);
  return mask;
}

Constraint::Mask Constraint::Compute(Step start) const {
  Mask mask(vocabulary_->words(), 0);
  uint32_t* const words = mask.data();
  const auto allow = [words](int32_t token) { words[token / 32] |= uint32_t{1} << (token % 32); };
  if (!has_grammar_) {
    for (int32_t token = 0; token < vocabulary_->size(); ++token) {
      if (vocabulary_->bytes(token).empty()) {
        allow(token);
      }
    }
  }
  const TokenVocabulary::Node* const nodes = vocabulary_->nodes().data();
  const int32_t* const tokens = vocabulary_->tokens().data();
  const auto count = static_cast<int32_t>(vocabulary_->nodes().size()) - 1;
  std::vector<Step> steps(vocabulary_->max_depth() + 1);
  Step* const path = steps.data();
  path[0] = start;
  for (int32_t i = 0; i < count;) {
    const TokenVocabulary::Node& node = nodes[i];
    Step step = path[node.depth - 1];
    if (!Walk(step, node.byte)) {
      i = node.after;
      continue;
    }
    path[node.depth] = step;
    for (int32_t t = node.first_token; t < nodes[i + 1].first_token; ++t) {
      allow(tokens[t]);
    }
    ++i;
  }
  const bool accepts = AcceptsAt(start);
  for (const TokenId stop : stop_ids_) {
    const int32_t id = Raw(stop);
    if (id >= 0 && id < vocabulary_->size()) {
      mask[id / 32] &= ~(uint32_t{1} << (id % 32));
      if (accepts) {
        allow(id);
      }
    }
  }
  return mask;
}

}  // namespace arborist
