#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "common/grammar/byte_grammar.h"

namespace arborist {

// A grammar that is known to be sound: from every state that is used, the end can be reached with at most
// `need(state)` calls on the stack, and no rule calls itself before a byte is read. Immutable.
class TrimmedGrammar {
 public:
  static constexpr int32_t kMaxDepth =
      192;  // calls on the stack; as many levels of nested JSON; parsers stand far more
  static constexpr int32_t kNever = 1'000'000'000;  // need of a state from which no text ends

  // InvalidArgument if the language is empty, too deep or refers to itself without reading anything, or if
  // the grammar outgrew its limits; `what` names it ("regex", "json_schema").
  static absl::StatusOr<TrimmedGrammar> Create(ByteGrammar grammar, std::string_view what);

  size_t states() const { return grammar_.states().size(); }
  size_t bytes() const {  // of memory, about
    return sizeof(*this) + grammar_.bytes() + need_.capacity() * sizeof(int32_t) + ends_at_once_.capacity();
  }
  int32_t start() const { return rule(grammar_.root()).start; }
  const ByteGrammar::State& state(int32_t state) const { return grammar_.states()[state]; }
  const ByteGrammar::Rule& rule(int32_t rule) const { return grammar_.rules()[rule]; }
  int32_t need(int32_t state) const { return need_[state]; }
  bool ends_at_once(int32_t state) const {
    return ends_at_once_[state] != 0;
  }  // the rule ends here, nothing else

  // Bytes that no edge tells apart have one class.
  int32_t byte_class(uint8_t byte) const { return byte_class_[byte]; }
  int32_t byte_classes() const { return byte_classes_; }
  bool UsesByte(uint8_t byte) const { return used_[byte]; }

 private:
  explicit TrimmedGrammar(ByteGrammar grammar) : grammar_(std::move(grammar)) {}
  void ComputeNeeds();
  bool RecursesWithoutReading() const;
  void ComputeTails();
  std::vector<uint8_t> Reached() const;
  void ComputeClasses();

  ByteGrammar grammar_;
  std::vector<int32_t> need_;
  std::vector<uint8_t> ends_at_once_;
  std::array<int32_t, 256> byte_class_{};
  std::array<bool, 256> used_{};
  int32_t byte_classes_ = 0;
};

}  // namespace arborist
