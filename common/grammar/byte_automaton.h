#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/statusor.h"
#include "common/grammar/byte_grammar.h"
#include "common/grammar/trimmed_grammar.h"

namespace arborist {

// A set of stacks, shared and immutable: the stacks that end here (`has_empty`) and, by return state, what
// stands below it. Equal sets are one object (within an epoch), so a set that grows by recursion costs what
// it adds.
struct StackSet {
  using Pointer = std::shared_ptr<const StackSet>;
  std::vector<std::pair<int32_t, Pointer>> entries;  // ascending return states, each once
  bool has_empty = false;
  int32_t depth = 0;  // of the deepest stack
};

// Runs a grammar over bytes: a pushdown automaton made deterministic lazily, as sets of stacks. From every
// state it hands out some sequence of bytes leads to acceptance: dead branches were cut out of the grammar,
// and a call is only made where the stack has room for what must follow. Not thread-safe.
class ByteAutomaton {
 public:
  static constexpr int32_t kDead = -1;
  static constexpr size_t kMaxBytes = size_t{64} << 20;  // about; then everything is forgotten and built anew

  // Exhausted, and of no use, if the start alone is too much work.
  explicit ByteAutomaton(TrimmedGrammar grammar);

  // A state that outlives the automaton's memory of it. Equality is not defined.
  struct State {
    StackSet::Pointer set;
    uint64_t epoch = 0;
    int32_t id = kDead;
  };

  State Start() { return Hold(start_set_, StartId()); }

  // Ids are valid until the next call of Forget: a caller looks up the id of its state, and walks from there.
  void Forget();
  size_t bytes() const { return bytes_; }  // of what is remembered, about
  size_t grammar_bytes() const {           // of what stays
    return grammar_.bytes() + (reached_in_.capacity() + place_.capacity()) * sizeof(uint32_t);
  }
  // New states cost work: visits of grammar states. Beyond the limit none are made: Next says kDead, which is
  // not remembered, and the automaton is exhausted until more work is allowed.
  void AllowWork(int64_t visits) {
    work_left_ = visits;
    exhausted_ = false;
  }
  int64_t work_left() const { return work_left_; }
  bool exhausted() const { return exhausted_; }
  int32_t Id(const State& state);
  State Hold(int32_t id) { return Hold(states_[id], id); }
  int32_t Next(int32_t id, uint8_t byte) {  // kDead if no text of the language goes on like this
    const size_t slot = static_cast<size_t>(id) * grammar_.byte_classes() + grammar_.byte_class(byte);
    return next_[slot] != kUnknown ? next_[slot] : Find(slot, id, byte);
  }
  bool Accepts(int32_t id) const { return states_[id]->has_empty; }

  size_t states() const { return states_.size(); }
  const TrimmedGrammar& grammar() const { return grammar_; }

 private:
  static constexpr int32_t kUnknown = -2;

  struct SetHash {
    size_t operator()(const StackSet::Pointer& set) const;
  };
  struct SetEqual {
    bool operator()(const StackSet::Pointer& a, const StackSet::Pointer& b) const;
  };
  using Pending = std::vector<std::pair<int32_t, StackSet::Pointer>>;

  State Hold(StackSet::Pointer set, int32_t id) { return {std::move(set), epoch_, id}; }
  int32_t StartId();
  int32_t Find(size_t slot, int32_t id, uint8_t byte);
  int32_t Intern(StackSet::Pointer set);
  StackSet::Pointer Share(StackSet set);
  StackSet::Pointer Union(const StackSet::Pointer& a, const StackSet::Pointer& b);
  StackSet::Pointer Close(Pending pending);  // everything that is reached without a byte

  TrimmedGrammar grammar_;  // never changes; not const, which would make a move a copy
  StackSet::Pointer empty_stack_;
  StackSet::Pointer start_set_;
  uint64_t epoch_ = 1;
  size_t bytes_ = 0;
  int64_t work_left_ = 0;
  bool exhausted_ = false;
  std::vector<uint32_t> reached_in_;  // by grammar state: the call of Close that reached it last
  std::vector<uint32_t> place_;       // and where it stands there
  uint32_t closes_ = 0;
  std::vector<StackSet::Pointer> states_;  // entries are (grammar state with edges, stacks below it)
  std::vector<int32_t> next_;              // [states, byte classes]: kUnknown, kDead or an id
  absl::flat_hash_map<const StackSet*, int32_t> ids_;
  absl::flat_hash_set<StackSet::Pointer, SetHash, SetEqual> shared_;
  // The keys are held, so that no other set takes their address.
  absl::flat_hash_map<std::pair<StackSet::Pointer, StackSet::Pointer>, StackSet::Pointer> unions_;
};

}  // namespace arborist
