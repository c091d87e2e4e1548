#include "common/grammar/constraint.h"

#include <algorithm>
#include <bit>
#include <mutex>

#include "common/base/utf8.h"

namespace arborist {
namespace {

// Of a walk, between two looks for those who wait: some ten microseconds.
constexpr int32_t kNodesOfTurn = 1024;

// Tokens that are looked at one by one rather than by a walk over all.
constexpr int kFewTokens = 1024;

// The bytes at the end of a prompt that begin a character.
std::string UnfinishedCharacter(const TokenVocabulary& vocabulary, std::span<const TokenId> prompt) {
  constexpr size_t kMostBytes = 3;
  std::string bytes;
  for (size_t i = prompt.size(); i > 0 && bytes.size() < kMostBytes; --i) {
    const int32_t id = Raw(prompt[i - 1]);
    if (id < 0 || id >= vocabulary.size() || vocabulary.bytes(id).empty()) {
      break;  // special: what stands before it is over
    }
    bytes.insert(0, vocabulary.bytes(id));
  }
  return std::string(IncompleteUtf8Tail(bytes));
}

}  // namespace

Constraint::Constraint(Parts parts, std::shared_ptr<const TokenVocabulary> vocabulary,
                       std::shared_ptr<ConstraintMemory> memory)
    : vocabulary_(std::move(vocabulary)),
      forbidden_(std::move(parts.forbidden)),
      stop_ids_(std::move(parts.stop_ids)),
      field_(std::move(parts.field)),
      has_forbidden_(!forbidden_.empty()),
      has_grammar_(parts.grammar.has_value()),
      memory_(std::move(memory)),
      compiled_bytes_(parts.bytes),
      grammar_(std::move(parts.grammar)) {}

Constraint::~Constraint() { memory_->Leave(compiled_bytes_); }

class Constraint::Turn {
 public:
  Turn(const Constraint& constraint, int64_t work) : constraint_(constraint), held_(constraint.lock_) {
    if (constraint_.has_grammar_) {
      constraint_.grammar_->AllowWork(work);
    }
  }

  void LetOthersPass() {
    const int64_t left = constraint_.has_grammar_ ? constraint_.grammar_->work_left() : 0;
    constraint_.lock_.LetOthersPass();
    if (constraint_.has_grammar_) {
      constraint_.grammar_->AllowWork(left);
    }
  }

 private:
  const Constraint& constraint_;
  const std::lock_guard<TurnLock> held_;
};

bool Constraint::TooMuch() const { return has_grammar_ && grammar_->exhausted(); }

size_t Constraint::bytes() const {
  const Turn turn(*this, kStepWork);
  return sizeof(*this) + compiled_bytes_ + stop_ids_.capacity() * sizeof(TokenId) +
         (has_grammar_ ? grammar_->bytes() : 0) + masks_.size() * MaskBytes();
}

size_t Constraint::MaskBytes() const { return sizeof(uint32_t) * (vocabulary_->words() + 32); }

Constraint::State Constraint::Start(std::span<const TokenId> prompt) const {
  const Turn turn(*this, kStepWork);
  State state;
  if (has_forbidden_) {
    for (const char byte : UnfinishedCharacter(*vocabulary_, prompt)) {
      const int32_t next = forbidden_.Next(state.forbidden, static_cast<uint8_t>(byte));
      state.forbidden = next == ForbiddenStrings::kDead ? 0 : next;  // in the prompt: not the output's fault
    }
  }
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

bool Constraint::Walk(Step& step, const std::string& bytes) const {
  for (const char byte : bytes) {
    if (!Walk(step, static_cast<uint8_t>(byte))) {
      return false;
    }
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

std::optional<Constraint::State> Constraint::Advance(const State& state, TokenId token,
                                                     bool* too_much) const {
  if (too_much != nullptr) {
    *too_much = false;
  }
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
  if (!Walk(step, bytes)) {
    if (too_much != nullptr) {
      *too_much = TooMuch();
    }
    return std::nullopt;
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
  if (TooMuch()) {
    return nullptr;
  }
  const size_t room = std::min(kMaskCacheBytes, memory_->share() / 2);
  if (masks_.size() >= std::max<size_t>(1, room / MaskBytes())) {
    masks_.clear();
  }
  masks_.emplace(std::move(key), mask);
  return mask;
}

std::optional<bool> Constraint::AllowsAny(const State& state, std::span<const uint32_t> among,
                                          bool no_stops) const {
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
  const bool found = FindsAny(start, among);
  return !found && TooMuch() ? std::nullopt : std::optional(found);
}

bool Constraint::FindsAny(const Step& start, std::span<const uint32_t> among) const {
  const size_t words = std::min<size_t>(among.size(), static_cast<size_t>(vocabulary_->words()));
  int count = 0;
  for (size_t word = 0; word < words; ++word) {
    count += std::popcount(among[word]);
  }
  bool found = false;
  if (among.empty() || count > kFewTokens) {
    WalkTokens(start, nullptr, [&](int32_t token) {
      const auto word = static_cast<size_t>(token) / 32;
      found = (among.empty() || (word < words && (among[word] >> (token % 32) & 1) != 0)) &&
              !IsStop(TokenId{token});
      return !found;
    });
    return found;
  }
  for (size_t word = 0; word < words && !found; ++word) {
    for (uint32_t bits = among[word]; bits != 0 && !found && !TooMuch(); bits &= bits - 1) {
      const auto token = static_cast<int32_t>(word * 32) + std::countr_zero(bits);
      Step step = start;
      found = token < vocabulary_->size() && !IsStop(TokenId{token}) && !vocabulary_->bytes(token).empty() &&
              Walk(step, vocabulary_->bytes(token));
    }
  }
  return found;
}

// Calls `visit` with each token that may follow, until it says false or it is too much.
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
      if (TooMuch()) {
        return;
      }
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
  if (!full && !lock_.wanted()) {
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
