#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "common/base/ids.h"
#include "common/grammar/byte_automaton.h"
#include "common/grammar/constraint_memory.h"
#include "common/grammar/forbidden_strings.h"
#include "common/grammar/token_vocabulary.h"
#include "common/grammar/turn_lock.h"

namespace arborist {

// What the text of one sequence must be like. At most one of json_schema and regex.
struct ConstraintSpec {
  std::string json_schema = "";  // empty: none
  std::string regex = "";        // empty: none; the whole output matches it
  std::vector<std::string> bad_words = {};
  std::vector<TokenId> stop_ids = {};  // tokens that end the sequence
};

// One request's constraint over the tokens of a vocabulary: a grammar (JSON schema or regex), forbidden
// strings, or both at once. Immutable to its users and thread-safe: calls take turns on one lock, as the
// states are built lazily. A call that computes a mask lets the others pass every few microseconds, so only
// AllowedTokens takes long (milliseconds, where nothing is cached).
//
// Under a grammar special tokens are forbidden, and stop ids are allowed exactly where the text may end; with
// forbidden strings alone special tokens and stop ids are always allowed. A grammar alone never runs into a
// dead end: from each state some tokens lead to a whole text. A grammar together with forbidden strings may
// (if it demands what they forbid): then no token is allowed and the sequence ends.
class Constraint {
 public:
  // A cheap value; belongs to the constraint that made it.
  struct State {
    ByteAutomaton::State grammar;
    int32_t forbidden = 0;
  };
  // [vocabulary.words()]: bit v % 32 of word v / 32 is 1 if token v is allowed.
  using Mask = std::vector<uint32_t>;

  static constexpr size_t kMaskCacheBytes = size_t{32} << 20;  // at most, and half of the memory's share
  // Visits of grammar states that one call may cost beyond what is cached: tenths of a second for a mask,
  // tens of milliseconds for all else. A call that would cost more says so, of itself alone: the constraint
  // is as good as before to everyone, and what that call found out makes the next one cheaper.
  static constexpr int64_t kMaskWork = 2'000'000;
  static constexpr int64_t kStepWork = 200'000;

  // InvalidArgument names the field, the place in it and what is expected; RESOURCE_EXHAUSTED: the memory has
  // no room for what it compiles to.
  static absl::StatusOr<std::shared_ptr<const Constraint>> Compile(
      const ConstraintSpec& spec, std::shared_ptr<const TokenVocabulary> vocabulary,
      std::shared_ptr<ConstraintMemory> memory = std::make_shared<ConstraintMemory>());
  ~Constraint();

  // Where a request says what the text must be like: "json_schema", "regex" or "bad_words".
  const std::string& field() const { return field_; }

  // After a prompt: a character that the prompt leaves unfinished is part of the output's first one, so
  // forbidden strings see its bytes.
  State Start(std::span<const TokenId> prompt = {}) const;
  bool Accepts(const State& state) const;  // the text may end here

  bool IsStop(TokenId token) const;
  const std::vector<TokenId>& stop_ids() const { return stop_ids_; }  // ascending

  size_t bytes() const;  // of memory: what it was compiled to, and what it keeps of states and masks

  // The state after `token`, or nothing if it is not allowed. A stop id where it is allowed leaves the state.
  // Also nothing, and `too_much` set where it is asked for, if that is too much work to know.
  std::optional<State> Advance(const State& state, TokenId token, bool* too_much = nullptr) const;

  // Tokens that may come next; ids beyond the vocabulary are forbidden. Null: too much work.
  std::shared_ptr<const Mask> AllowedTokens(const State& state) const;
  // The same if it is cached, else null.
  std::shared_ptr<const Mask> CachedTokens(const State& state) const;
  // Whether any token may come next of those in `among` (a mask; empty: of all), stop ids left out if
  // `no_stops`. Ends with the first one that it finds; looks at each of a few, else walks over all tokens.
  // Nothing: too much work.
  std::optional<bool> AllowsAny(const State& state, std::span<const uint32_t> among, bool no_stops) const;

 private:
  using Key = std::pair<StackSet::Pointer, int32_t>;
  struct Step {
    int32_t grammar;
    int32_t forbidden;
  };
  // What a spec compiles to, and what that takes.
  struct Parts {
    std::optional<ByteAutomaton> grammar;
    ForbiddenStrings forbidden;
    std::vector<TokenId> stop_ids;
    std::string field;
    size_t bytes = 0;
  };
  // One call: holds the lock, and has work to spend.
  class Turn;

  // The memory has been joined with parts.bytes.
  Constraint(Parts parts, std::shared_ptr<const TokenVocabulary> vocabulary,
             std::shared_ptr<ConstraintMemory> memory);
  Step Look(const State& state) const;
  Key KeyOf(const Step& step) const;
  void ForgetIfFull() const;
  size_t MaskBytes() const;                   // of one that is cached, about
  bool Walk(Step& step, uint8_t byte) const;  // false: not allowed, or too much work
  bool Walk(Step& step, const std::string& bytes) const;
  bool TooMuch() const;  // of the call so far
  bool AcceptsAt(const Step& step) const;
  template <typename Visit>
  void WalkTokens(const Step& start, Turn* turn, const Visit& visit) const;
  Mask Compute(const Step& start, Turn& turn) const;  // of no use if it is too much
  bool FindsAny(const Step& start, std::span<const uint32_t> among) const;
  // Between two nodes of a walk: lets other calls pass. `path` is what the walk has of steps; their ids may
  // change.
  void LetOthersPass(std::span<Step> path, Turn& turn) const;

  const std::shared_ptr<const TokenVocabulary> vocabulary_;
  const ForbiddenStrings forbidden_;
  const std::vector<TokenId> stop_ids_;  // ascending
  const std::string field_;
  const bool has_forbidden_;
  const bool has_grammar_;
  const std::shared_ptr<ConstraintMemory> memory_;
  const size_t compiled_bytes_;

  mutable TurnLock lock_;
  mutable std::optional<ByteAutomaton> grammar_;
  // By (identity of the grammar's state, forbidden state). The set is held, so that no other takes its
  // address.
  mutable absl::flat_hash_map<Key, std::shared_ptr<const Mask>> masks_;
};

}  // namespace arborist
