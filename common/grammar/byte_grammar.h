#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "absl/status/status.h"

namespace arborist {

// A language over bytes: rules, each a nondeterministic automaton whose edges read bytes or call rules
// (recursion is allowed, so this is a context-free grammar). The builders (regex, JSON schema) write it,
// ByteAutomaton runs it.
class ByteGrammar {
 public:
  static constexpr size_t kMaxStates = 200'000;
  static constexpr size_t kMaxEdges = 1'000'000;

  struct Edge {
    uint8_t low;  // inclusive, as high
    uint8_t high;
    int32_t to;
  };
  struct Call {
    int32_t rule;
    int32_t to;  // in the caller, after the rule's end
  };
  struct State {
    std::vector<Edge> edges;
    std::vector<Call> calls;
    std::vector<int32_t> epsilons;
    int32_t rule = -1;  // whose end this is, or -1
  };
  struct Rule {
    int32_t start = -1;
    int32_t end = -1;
  };
  // Part of a rule: what is read from start to end. Nothing leaves `end` and nothing enters `start` when it
  // is made.
  struct Part {
    int32_t start;
    int32_t end;
  };

  // Past a limit no more states are made (the last one is handed out), `failed` is set and the grammar is of
  // no use: builders stop their loops on it.
  int32_t NewState();
  bool failed() const { return failed_; }

  Part Nothing();  // reads no byte
  Part Bytes(std::string_view bytes);
  Part Range(uint8_t low, uint8_t high);
  Part CallOf(int32_t rule);
  Part Then(Part first, Part second);
  Part Either(const std::vector<Part>& parts);  // not empty
  Part Optional(Part part);
  Part Star(Part part);

  void AddEdge(int32_t from, uint8_t low, uint8_t high, int32_t to);
  void AddEpsilon(int32_t from, int32_t to);

  int32_t DeclareRule();
  void Define(int32_t rule, Part body);

  void set_root(int32_t rule) { root_ = rule; }
  int32_t root() const { return root_; }
  const std::vector<State>& states() const { return states_; }
  const std::vector<Rule>& rules() const { return rules_; }
  size_t bytes() const;  // of memory, about

 private:
  std::vector<State> states_;
  std::vector<Rule> rules_;
  size_t edges_ = 0;
  int32_t root_ = -1;
  bool failed_ = false;
};

}  // namespace arborist
