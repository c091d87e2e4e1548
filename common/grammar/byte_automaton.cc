#include "common/grammar/byte_automaton.h"

#include <algorithm>

#include "absl/hash/hash.h"
#include "common/base/check.h"

namespace arborist {
namespace {

// Of a set, of a state beside its row of next states, and of a union: with what the tables hold of them.
constexpr size_t kSetBytes = 112;
constexpr size_t kStateBytes = 48;
constexpr size_t kUnionBytes = 80;
// For the start state.
constexpr int64_t kStartWork = 5'000'000;

}  // namespace

size_t ByteAutomaton::SetHash::operator()(const StackSet::Pointer& set) const {
  size_t hash = set->has_empty ? 1 : 0;
  for (const auto& [state, below] : set->entries) {
    hash = absl::HashOf(hash, state, below.get());
  }
  return hash;
}

bool ByteAutomaton::SetEqual::operator()(const StackSet::Pointer& a, const StackSet::Pointer& b) const {
  return a->has_empty == b->has_empty && a->entries == b->entries;
}

ByteAutomaton::ByteAutomaton(TrimmedGrammar grammar)
    : grammar_(std::move(grammar)), reached_in_(grammar_.states(), 0), place_(grammar_.states(), 0) {
  StackSet empty;
  empty.has_empty = true;
  empty_stack_ = Share(std::move(empty));
  AllowWork(kStartWork);
  start_set_ = Close({{grammar_.start(), empty_stack_}});
}

StackSet::Pointer ByteAutomaton::Share(StackSet set) {
  const size_t bytes = kSetBytes + set.entries.capacity() * sizeof(set.entries[0]);
  const auto [found, is_new] = shared_.insert(std::make_shared<const StackSet>(std::move(set)));
  bytes_ += is_new ? bytes : 0;
  return *found;
}

int32_t ByteAutomaton::Intern(StackSet::Pointer set) {
  const auto [found, is_new] = ids_.try_emplace(set.get(), static_cast<int32_t>(states_.size()));
  if (is_new) {
    states_.push_back(std::move(set));
    next_.resize(next_.size() + grammar_.byte_classes(), kUnknown);
    bytes_ += kStateBytes + grammar_.byte_classes() * sizeof(int32_t);
  }
  return found->second;
}

int32_t ByteAutomaton::StartId() { return Intern(start_set_); }

void ByteAutomaton::Forget() {
  ++epoch_;
  bytes_ = 0;
  states_.clear();
  std::vector<int32_t>().swap(next_);
  ids_.clear();
  shared_.clear();
  unions_.clear();
  shared_.insert(empty_stack_);
  shared_.insert(start_set_);
}

int32_t ByteAutomaton::Id(const State& state) {
  Check(state.set != nullptr, "a state came from Start or Hold");
  return state.epoch == epoch_ ? state.id : Intern(*shared_.insert(state.set).first);
}

StackSet::Pointer ByteAutomaton::Union(const StackSet::Pointer& a, const StackSet::Pointer& b) {
  if (a == b) {
    return a;
  }
  const auto key = a.get() < b.get() ? std::pair(a, b) : std::pair(b, a);
  if (const auto found = unions_.find(key); found != unions_.end()) {
    return found->second;
  }
  StackSet both;
  both.has_empty = a->has_empty || b->has_empty;
  both.depth = std::max(a->depth, b->depth);
  auto left = a->entries.begin();
  auto right = b->entries.begin();
  while (left != a->entries.end() || right != b->entries.end()) {
    if (right == b->entries.end() || (left != a->entries.end() && left->first < right->first)) {
      both.entries.push_back(*left++);
    } else if (left == a->entries.end() || right->first < left->first) {
      both.entries.push_back(*right++);
    } else {
      both.entries.emplace_back(left->first, Union(left->second, right->second));
      ++left;
      ++right;
    }
  }
  StackSet::Pointer result = Share(std::move(both));
  unions_.emplace(key, result);
  bytes_ += kUnionBytes;
  work_left_ -= static_cast<int64_t>(result->entries.size());
  return result;
}

StackSet::Pointer ByteAutomaton::Close(Pending pending) {
  std::vector<std::pair<int32_t, StackSet::Pointer>> reached;
  ++closes_;
  bool accepts = false;
  const auto reach = [&](int32_t state, const StackSet::Pointer& below) {
    if (below->depth + grammar_.need(state) <= TrimmedGrammar::kMaxDepth) {
      pending.emplace_back(state, below);
    }
  };
  while (!pending.empty()) {
    if (--work_left_ < 0) {
      exhausted_ = true;
      return nullptr;
    }
    auto [state, below] = std::move(pending.back());
    pending.pop_back();
    if (reached_in_[state] == closes_) {
      StackSet::Pointer& known = reached[place_[state]].second;
      StackSet::Pointer both = Union(known, below);
      if (both == known) {
        continue;
      }
      below = known = std::move(both);
    } else {
      reached_in_[state] = closes_;
      place_[state] = static_cast<uint32_t>(reached.size());
      reached.emplace_back(state, below);
    }
    const ByteGrammar::State& from = grammar_.state(state);
    for (const int32_t to : from.epsilons) {
      reach(to, below);
    }
    for (const ByteGrammar::Call& call : from.calls) {
      const int32_t start = grammar_.rule(call.rule).start;
      if (grammar_.ends_at_once(call.to)) {
        reach(start, below);  // nothing to come back for
      } else if (below->depth + grammar_.need(call.to) <= TrimmedGrammar::kMaxDepth) {
        StackSet frame;
        frame.entries.emplace_back(call.to, below);
        frame.depth = below->depth + 1;
        reach(start, Share(std::move(frame)));
      }
    }
    if (from.rule >= 0) {
      accepts = accepts || below->has_empty;
      for (const auto& [to, rest] : below->entries) {
        reach(to, rest);
      }
    }
  }
  StackSet set;
  set.has_empty = accepts;
  std::sort(reached.begin(), reached.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  for (auto& [state, below] : reached) {
    if (!grammar_.state(state).edges.empty()) {
      set.depth = std::max(set.depth, below->depth);
      set.entries.emplace_back(state, std::move(below));
    }
  }
  return Share(std::move(set));
}

int32_t ByteAutomaton::Find(size_t slot, int32_t id, uint8_t byte) {
  Pending pending;
  for (const auto& [state, below] : states_[id]->entries) {
    for (const ByteGrammar::Edge& edge : grammar_.state(state).edges) {
      if (edge.low <= byte && byte <= edge.high &&
          below->depth + grammar_.need(edge.to) <= TrimmedGrammar::kMaxDepth) {
        pending.emplace_back(edge.to, below);
      }
    }
  }
  int32_t next = kDead;
  if (!pending.empty()) {
    StackSet::Pointer set = Close(std::move(pending));
    if (set == nullptr) {
      return kDead;
    }
    next = set->entries.empty() && !set->has_empty ? kDead : Intern(std::move(set));
  }
  next_[slot] = next;
  return next;
}

}  // namespace arborist
