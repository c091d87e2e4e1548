#pragma once

#include <cstdint>
#include <vector>

#include "common/grammar/byte_grammar.h"

namespace arborist {

// A set of Unicode characters (surrogates never belong to it): sorted, disjoint, inclusive ranges.
class CodePoints {
 public:
  struct Range {
    uint32_t low;
    uint32_t high;
  };

  CodePoints() = default;
  explicit CodePoints(std::vector<Range> ranges);  // in any order, may overlap; high <= 0x10FFFF

  static CodePoints All() { return CodePoints({{0, 0x10FFFF}}); }
  CodePoints Complement() const;
  CodePoints Without(const CodePoints& other) const;
  CodePoints With(const CodePoints& other) const;
  bool Contains(uint32_t character) const;
  bool empty() const { return ranges_.empty(); }
  const std::vector<Range>& ranges() const { return ranges_; }

 private:
  std::vector<Range> ranges_;
};

// How a character is written in the output.
enum class TextEncoding : uint8_t {
  kUtf8,        // as itself
  kJsonString,  // inside the quotes of a JSON string: one way for each character, escaped where JSON demands
                // it
};

// One character of the set.
ByteGrammar::Part OneOf(ByteGrammar& grammar, const CodePoints& characters, TextEncoding encoding);

}  // namespace arborist
