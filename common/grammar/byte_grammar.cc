#include "common/grammar/byte_grammar.h"

#include "common/base/check.h"

namespace arborist {

int32_t ByteGrammar::NewState() {
  if (states_.size() >= kMaxStates) {
    failed_ = true;
    return static_cast<int32_t>(states_.size()) - 1;
  }
  states_.emplace_back();
  return static_cast<int32_t>(states_.size()) - 1;
}

void ByteGrammar::AddEdge(int32_t from, uint8_t low, uint8_t high, int32_t to) {
  if (++edges_ > kMaxEdges) {
    failed_ = true;
    return;
  }
  states_[from].edges.push_back({low, high, to});
}

void ByteGrammar::AddEpsilon(int32_t from, int32_t to) {
  if (++edges_ > kMaxEdges) {
    failed_ = true;
    return;
  }
  states_[from].epsilons.push_back(to);
}

ByteGrammar::Part ByteGrammar::Nothing() {
  const int32_t state = NewState();
  return {state, state};
}

ByteGrammar::Part ByteGrammar::Bytes(std::string_view bytes) {
  Part part = Nothing();
  for (const char byte : bytes) {
    const int32_t next = NewState();
    AddEdge(part.end, static_cast<uint8_t>(byte), static_cast<uint8_t>(byte), next);
    part.end = next;
  }
  return part;
}

ByteGrammar::Part ByteGrammar::Range(uint8_t low, uint8_t high) {
  const Part part = {NewState(), NewState()};
  AddEdge(part.start, low, high, part.end);
  return part;
}

ByteGrammar::Part ByteGrammar::CallOf(int32_t rule) {
  const Part part = {NewState(), NewState()};
  if (!failed_) {
    states_[part.start].calls.push_back({rule, part.end});
  }
  return part;
}

ByteGrammar::Part ByteGrammar::Then(Part first, Part second) {
  AddEpsilon(first.end, second.start);
  return {first.start, second.end};
}

ByteGrammar::Part ByteGrammar::Either(const std::vector<Part>& parts) {
  Check(!parts.empty(), "a choice has a part");
  if (parts.size() == 1) {
    return parts[0];
  }
  const Part whole = {NewState(), NewState()};
  for (const Part& part : parts) {
    AddEpsilon(whole.start, part.start);
    AddEpsilon(part.end, whole.end);
  }
  return whole;
}

ByteGrammar::Part ByteGrammar::Optional(Part part) { return Either({part, Nothing()}); }

ByteGrammar::Part ByteGrammar::Star(Part part) {
  const Part whole = {NewState(), NewState()};
  AddEpsilon(whole.start, part.start);
  AddEpsilon(whole.start, whole.end);
  AddEpsilon(part.end, part.start);
  AddEpsilon(part.end, whole.end);
  return whole;
}

int32_t ByteGrammar::DeclareRule() {
  rules_.emplace_back();
  return static_cast<int32_t>(rules_.size()) - 1;
}

void ByteGrammar::Define(int32_t rule, Part body) {
  if (failed_) {
    return;
  }
  const int32_t end = NewState();  // of its own: the body's end may belong to a loop
  AddEpsilon(body.end, end);
  states_[end].rule = rule;
  rules_[rule] = {body.start, end};
}

size_t ByteGrammar::bytes() const {
  size_t sum = states_.capacity() * sizeof(State) + rules_.capacity() * sizeof(Rule);
  for (const State& state : states_) {
    sum += state.edges.capacity() * sizeof(Edge) + state.calls.capacity() * sizeof(Call) +
           state.epsilons.capacity() * sizeof(int32_t);
  }
  return sum;
}

}  // namespace arborist
