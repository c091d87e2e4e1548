#include "common/grammar/constraint.h"

#include <algorithm>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/check.h"
#include "common/base/status_macros.h"
#include "common/grammar/json_schema.h"
#include "common/grammar/regex.h"

namespace arborist {
namespace {

// Of a walk, between two looks for those who wait: some ten microseconds.
constexpr int32_t kNodesOfTurn = 1024;

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

absl::Status TooAmbiguous() {
  return absl::InvalidArgumentError(
      "json_schema or regex: too much work for one token, expected fewer alternatives that begin alike");
}

}  // namespace

absl::StatusOr<std::shared_ptr<const Constraint>> Constraint::Compile(
    const ConstraintSpec& spec, std::shared_ptr<const TokenVocabulary> vocabulary,
    std::shared_ptr<ConstraintMemory> memory) {
  Parts parts;
  ASSIGN_OR_RETURN(parts.forbidden, ForbiddenStrings::Create(spec.bad_words));
  ASSIGN_OR_RETURN(parts.grammar, CompileGrammar(spec, *vocabulary));
  if (parts.grammar.has_value() && parts.grammar->exhausted()) {
    return TooAmbiguous();
  }
  parts.stop_ids = spec.stop_ids;
  std::sort(parts.stop_ids.begin(), parts.stop_ids.end());
  parts.bytes = parts.forbidden.bytes() + (parts.grammar.has_value() ? parts.grammar->grammar_bytes() : 0);
  if (!memory->Join(parts.bytes)) {
    return absl::ResourceExhaustedError(absl::StrCat("constraints in use take ", memory->compiled(),
                                                     " bytes, which leaves no room for one of ",
                                                     parts.bytes));
  }
  return std::shared_ptr<const Constraint>(
      new Constraint(std::move(parts), std::move(vocabulary), std::move(memory)));
}

Constraint::Constraint(Parts parts, std::shared_ptr<const TokenVocabulary> vocabulary,
                       std::shared_ptr<ConstraintMemory> memory)
    : vocabulary_(std::move(vocabulary)),
      forbidden_(std::move(parts.forbidden)),
      stop_ids_(std::move(parts.stop_ids)),
      has_forbidden_(!forbidden_.empty()),
      has_grammar_(parts.grammar.has_value()),
      memory_(std::move(memory)),
      compiled_bytes_(parts.bytes),
      grammar_(std::move(parts.grammar)) {}

Constraint::~Constraint() { memory_->Leave(compiled_bytes_); }

class Constraint::Turn {
 public:
  Turn(const Constraint& constraint, int64_t work) : constraint_(constraint), work_(work) {
    constraint_.in_a_hurry_.fetch_add(1, std::memory_order_relaxed);
    lock_ = std::unique_lock(constraint_.mutex_);
    constraint_.in_a_hurry_.fetch_sub(1, std::memory_order_relaxed);
    if (constraint_.has_grammar_) {
      constraint_.grammar_->AllowWork(work_);
    }
  }

  void LetOthersPass() {
    const int64_t left = constraint_.has_grammar_ ? constraint_.grammar_->work_left() : 0;
    lock_.unlock();
    while (constraint_.in_a_hurry_.load(std::memory_order_relaxed) > 0) {
      std::this_thread::yield();
    }
    lock_.lock();
    if (constraint_.has_grammar_) {
      constraint_.grammar_->AllowWork(left);
    }
  }

 private:
  const Constraint& constraint_;
  const int64_t work_;
  std::unique_lock<std::mutex> lock_;
};

absl::Status Constraint::status() const {
  const Turn turn(*this, kStepWork);
  return has_grammar_ && grammar_->exhausted() ? TooAmbiguous() : absl::OkStatus();
}

size_t Constraint::bytes() const {
  const Turn turn(*this, kStepWork);
  return sizeof(*this) + compiled_bytes_ + stop_ids_.capacity() * sizeof(TokenId) +
         (has_grammar_ ? grammar_->bytes() : 0) + masks_.size() * MaskBytes();
}

size_t Constraint::MaskBytes() const { return sizeof(uint32_t) * (vocabulary_->words() + 32); }

Constraint::State Constraint::Start() const {
  const Turn turn(*this, kStepWork);
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
  ForgetIfFull();
  return {grammar_->Id(state.grammar), state.forbidden};
}

void Constraint::ForgetIfFull() const {
  if (grammar_->bytes() > std::min(ByteAutomaton::kMaxBytes, memory_->share() / 2)) {
    grammar_->Forget();
  }
}

Constraint::Key Constraint::KeyOf(const Step& step) const {
  return {has_grammar_ ? grammar_->Hold(step.grammar).set : nullptr, step.forbidden};
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
  const Turn turn(*this, kStepWork);
  return AcceptsAt(Look(state));
}

bool Constraint::IsFinal(const State& state) const {
  const Turn turn(*this, kStepWork);
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
  const Turn turn(*this, kStepWork);
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

std::shared_ptr<const Constraint::Mask> Constraint::CachedTokens(const State& state) const {
  const Turn turn(*this, kStepWork);
  const auto found = masks_.find(KeyOf(Look(state)));
  return found != masks_.end() ? found->second : nullptr;
}

std::shared_ptr<const Constraint::Mask> Constraint::AllowedTokens(const State& state) const {
  Turn turn(*this, kMaskWork);
  const Step step = Look(state);
  Key key = KeyOf(step);
  if (const auto found = masks_.find(key); found != masks_.end()) {
    return found->second;
  }
  auto mask = std::make_shared<const Mask>(Compute(step, turn));
  const size_t room = std::min(kMaskCacheBytes, memory_->share() / 2);
  if (masks_.size() >= std::max<size_t>(1, room / MaskBytes())) {
    masks_.clear();
  }
  masks_.emplace(std::move(key), mask);
  return mask;
}

bool Constraint::AllowsAny(const State& state, std::span<const uint32_t> among, bool no_stops) const {
  const Turn turn(*this, kStepWork);
  const Step start = Look(state);
  const auto counts = [&](int32_t token) {
    return among.empty() ||
           (static_cast<size_t>(token) / 32 < among.size() && (among[token / 32] >> (token % 32) & 1) != 0);
  };
  if (!no_stops && AcceptsAt(start)) {
    for (const TokenId stop : stop_ids_) {
      if (Raw(stop) >= 0 && Raw(stop) < vocabulary_->size() && counts(Raw(stop))) {
        return true;
      }
    }
  }
  if (!has_grammar_) {
    for (const int32_t token : vocabulary_->silent()) {
      if (counts(token) && !IsStop(TokenId{token})) {
        return true;
      }
    }
  }
  bool found = false;
  WalkTokens(start, nullptr, [&](int32_t token) {
    found = counts(token) && !IsStop(TokenId{token});
    return !found;
  });
  return found;
}

// Calls `visit` with each token that may follow, until it says false.
template <typename Visit>
void Constraint::WalkTokens(const Step& start, Turn* turn, const Visit& visit) const {
  const TokenVocabulary::Node* const nodes = vocabulary_->nodes().data();
  const int32_t* const tokens = vocabulary_->tokens().data();
  const auto count = static_cast<int32_t>(vocabulary_->nodes().size()) - 1;
  std::vector<Step> steps(vocabulary_->max_depth() + 1);
  Step* const path = steps.data();
  path[0] = start;
  for (int32_t i = 0, visits = 0; i < count; ++visits) {
    const TokenVocabulary::Node& node = nodes[i];
    if (turn != nullptr && visits % kNodesOfTurn == 0) {
      LetOthersPass({path, static_cast<size_t>(node.depth)}, *turn);
    }
    Step step = path[node.depth - 1];
    if (!Walk(step, node.byte)) {
      i = node.after;
      continue;
    }
    path[node.depth] = step;
    for (int32_t t = node.first_token; t < nodes[i + 1].first_token; ++t) {
      if (!visit(tokens[t])) {
        return;
      }
    }
    ++i;
  }
}

void Constraint::LetOthersPass(std::span<Step> path, Turn& turn) const {
  const bool full =
      has_grammar_ && grammar_->bytes() > 2 * std::min(ByteAutomaton::kMaxBytes, memory_->share());
  if (!full && in_a_hurry_.load(std::memory_order_relaxed) == 0) {
    return;
  }
  std::vector<ByteAutomaton::State> held;
  for (size_t i = 0; has_grammar_ && i < path.size(); ++i) {
    held.push_back(grammar_->Hold(path[i].grammar));
  }
  if (full) {
    grammar_->Forget();
  }
  turn.LetOthersPass();
  for (size_t i = 0; i < held.size(); ++i) {
    path[i].grammar = grammar_->Id(held[i]);
  }
}

Constraint::Mask Constraint::Compute(const Step& start, Turn& turn) const {
  Mask mask(vocabulary_->words(), 0);
  uint32_t* const words = mask.data();
  const auto allow = [words](int32_t token) { words[token / 32] |= uint32_t{1} << (token % 32); };
  const bool accepts = AcceptsAt(start);
  if (!has_grammar_) {
    for (const int32_t token : vocabulary_->silent()) {
      allow(token);
    }
  }
  WalkTokens(start, &turn, [&](int32_t token) {
    allow(token);
    return true;
  });
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
