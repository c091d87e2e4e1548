#include "common/grammar/trimmed_grammar.h"

#include <algorithm>
#include <string>
#include <string_view>

#include "absl/strings/str_cat.h"

namespace arborist {

absl::StatusOr<TrimmedGrammar> TrimmedGrammar::Create(ByteGrammar grammar, std::string_view what) {
  const std::string name(what);
  if (grammar.failed()) {
    return absl::InvalidArgumentError(absl::StrCat(name, ": becomes more than ", ByteGrammar::kMaxStates,
                                                   " states, expected fewer or smaller repetitions"));
  }
  TrimmedGrammar trimmed(std::move(grammar));
  if (trimmed.RecursesWithoutReading()) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, ": a definition refers to itself before anything is written"));
  }
  trimmed.ComputeNeeds();
  const int32_t need = trimmed.need(trimmed.start());
  if (need == kNever) {
    return absl::InvalidArgumentError(absl::StrCat(name, ": no text satisfies it"));
  }
  if (need > kMaxDepth) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, ": nests ", need, " definitions deep, expected at most ", kMaxDepth));
  }
  trimmed.ComputeTails();
  trimmed.ComputeClasses();
  return trimmed;
}

// need(s): the least stack that leads from s to its rule's end. Least fixed point by a worklist; a value only
// falls.
void TrimmedGrammar::ComputeNeeds() {
  const auto& states = grammar_.states();
  const auto count = static_cast<int32_t>(states.size());
  std::vector<std::vector<int32_t>> before(count);  // states whose need depends on this one's
  std::vector<std::vector<int32_t>> callers(grammar_.rules().size());
  std::vector<std::vector<int32_t>> rules_from(count);
  for (int32_t s = 0; s < count; ++s) {
    for (const ByteGrammar::Edge& edge : states[s].edges) {
      before[edge.to].push_back(s);
    }
    for (const int32_t to : states[s].epsilons) {
      before[to].push_back(s);
    }
    for (const ByteGrammar::Call& call : states[s].calls) {
      before[call.to].push_back(s);
      callers[call.rule].push_back(s);
    }
  }
  for (size_t r = 0; r < grammar_.rules().size(); ++r) {
    if (grammar_.rules()[r].start >= 0) {
      rules_from[grammar_.rules()[r].start].push_back(static_cast<int32_t>(r));
    }
  }
  need_.assign(count, kNever);
  std::vector<int32_t> work;
  for (int32_t s = 0; s < count; ++s) {
    if (states[s].rule >= 0) {
      need_[s] = 0;
      work.push_back(s);
    }
  }
  const auto evaluate = [&](int32_t s) {
    int32_t least = states[s].rule >= 0 ? 0 : kNever;
    for (const ByteGrammar::Edge& edge : states[s].edges) {
      least = std::min(least, need_[edge.to]);
    }
    for (const int32_t to : states[s].epsilons) {
      least = std::min(least, need_[to]);
    }
    for (const ByteGrammar::Call& call : states[s].calls) {
      const int32_t start = grammar_.rules()[call.rule].start;
      if (start >= 0 && need_[start] < kNever && need_[call.to] < kNever) {
        least = std::min(least, std::max(need_[call.to], need_[start] + 1));
      }
    }
    return least;
  };
  const auto visit = [&](int32_t s) {
    const int32_t value = evaluate(s);
    if (value < need_[s]) {
      need_[s] = value;
      work.push_back(s);
    }
  };
  // First in, first out: values settle nearly in order of size, so few states are visited again.
  for (size_t i = 0; i < work.size(); ++i) {
    const int32_t s = work[i];
    for (const int32_t other : before[s]) {
      visit(other);
    }
    for (const int32_t rule : rules_from[s]) {
      for (const int32_t caller : callers[rule]) {
        visit(caller);
      }
    }
  }
}

// A rule that is reached from its own start over states that read nothing. Calls of rules that may read
// nothing are passed over; which rules those are is a fixed point too.
bool TrimmedGrammar::RecursesWithoutReading() const {
  const auto& states = grammar_.states();
  const auto& rules = grammar_.rules();
  std::vector<uint8_t> may_be_empty(rules.size(), 0);
  std::vector<int32_t> mark(states.size(), -1);
  // Rules called from rule r before a byte; second: whether its end was reached.
  const auto first_calls = [&](int32_t r, int32_t stamp) {
    std::pair<std::vector<int32_t>, bool> found;
    std::vector<int32_t> work;
    const auto push = [&](int32_t s) {
      if (s >= 0 && mark[s] != stamp) {
        mark[s] = stamp;
        work.push_back(s);
      }
    };
    push(rules[r].start);
    while (!work.empty()) {
      const int32_t s = work.back();
      work.pop_back();
      found.second = found.second || states[s].rule == r;
      for (const int32_t to : states[s].epsilons) {
        push(to);
      }
      for (const ByteGrammar::Call& call : states[s].calls) {
        found.first.push_back(call.rule);
        if (may_be_empty[call.rule] != 0) {
          push(call.to);
        }
      }
    }
    return found;
  };
  int32_t stamp = 0;
  std::vector<std::vector<int32_t>> calls(rules.size());
  for (bool changed = true; changed;) {
    changed = false;
    for (size_t r = 0; r < rules.size(); ++r) {
      auto [called, empty] = first_calls(static_cast<int32_t>(r), stamp++);
      calls[r] = std::move(called);
      if (empty && may_be_empty[r] == 0) {
        may_be_empty[r] = 1;
        changed = true;
      }
    }
  }
  std::vector<int32_t> callers(rules.size(), 0);  // Kahn: what is left over is in or behind a cycle
  for (const auto& list : calls) {
    for (const int32_t r : list) {
      ++callers[r];
    }
  }
  std::vector<int32_t> work;
  for (size_t r = 0; r < rules.size(); ++r) {
    if (callers[r] == 0) {
      work.push_back(static_cast<int32_t>(r));
    }
  }
  size_t done = 0;
  for (; done < work.size(); ++done) {
    for (const int32_t r : calls[work[done]]) {
      if (--callers[r] == 0) {
        work.push_back(r);
      }
    }
  }
  return done < rules.size();
}

void TrimmedGrammar::ComputeTails() {
  const auto& states = grammar_.states();
  ends_at_once_.assign(states.size(), 0);
  // Follows the only way out of a state, if it reads nothing. A few steps do: longer chains only cost a stack
  // frame.
  for (size_t s = 0; s < states.size(); ++s) {
    int32_t at = static_cast<int32_t>(s);
    for (int step = 0; step < 8; ++step) {
      const ByteGrammar::State& state = states[at];
      if (!state.edges.empty() || !state.calls.empty()) {
        break;
      }
      if (state.rule >= 0 && state.epsilons.empty()) {
        ends_at_once_[s] = 1;
        break;
      }
      if (state.rule >= 0 || state.epsilons.size() != 1) {
        break;
      }
      at = state.epsilons[0];
    }
  }
}

// States that some text leads to. Builders also write rules that nothing calls.
std::vector<uint8_t> TrimmedGrammar::Reached() const {
  std::vector<uint8_t> reached(states(), 0);
  std::vector<int32_t> work;
  const auto push = [&](int32_t s) {
    if (s >= 0 && reached[s] == 0 && need_[s] <= kMaxDepth) {
      reached[s] = 1;
      work.push_back(s);
    }
  };
  push(start());
  while (!work.empty()) {
    const ByteGrammar::State& from = state(work.back());
    work.pop_back();
    for (const ByteGrammar::Edge& edge : from.edges) {
      push(edge.to);
    }
    for (const int32_t to : from.epsilons) {
      push(to);
    }
    for (const ByteGrammar::Call& call : from.calls) {
      if (need_[call.to] <= kMaxDepth) {
        push(rule(call.rule).start);
      }
      push(call.to);
    }
  }
  return reached;
}

void TrimmedGrammar::ComputeClasses() {
  std::array<bool, 257> begins{};
  begins[0] = true;
  const std::vector<uint8_t> reached = Reached();
  for (size_t s = 0; s < grammar_.states().size(); ++s) {
    for (const ByteGrammar::Edge& edge : grammar_.states()[s].edges) {
      if (reached[s] == 0 || need_[edge.to] > kMaxDepth) {
        continue;
      }
      begins[edge.low] = true;
      begins[edge.high + 1] = true;
      for (int byte = edge.low; byte <= edge.high; ++byte) {
        used_[byte] = true;
      }
    }
  }
  int32_t last = -1;
  for (int byte = 0; byte < 256; ++byte) {
    last += begins[byte] ? 1 : 0;
    byte_class_[byte] = last;
  }
  byte_classes_ = last + 1;
}

}  // namespace arborist
