#include "common/grammar/code_points.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_format.h"
#include "common/base/utf8.h"

namespace arborist {
namespace {

constexpr uint32_t kLast = 0x10FFFF;

// Both ends have the same number of bytes. Splits until every range is a product of byte ranges.
void AddUtf8(ByteGrammar& grammar, uint32_t low, uint32_t high, ByteGrammar::Part whole) {
  for (const int bits : {18, 12, 6}) {
    const uint32_t mask = (uint32_t{1} << bits) - 1;
    if ((low & ~mask) == (high & ~mask)) {
      continue;
    }
    if ((low & mask) != 0) {
      AddUtf8(grammar, low, low | mask, whole);
      AddUtf8(grammar, (low | mask) + 1, high, whole);
      return;
    }
    if ((high & mask) != mask) {
      AddUtf8(grammar, low, (high & ~mask) - 1, whole);
      AddUtf8(grammar, high & ~mask, high, whole);
      return;
    }
  }
  std::string first;
  std::string last;
  AppendUtf8(low, first);
  AppendUtf8(high, last);
  int32_t from = whole.start;
  for (size_t i = 0; i < first.size(); ++i) {
    const int32_t to = i + 1 == first.size() ? whole.end : grammar.NewState();
    grammar.AddEdge(from, static_cast<uint8_t>(first[i]), static_cast<uint8_t>(last[i]), to);
    from = to;
  }
}

std::string JsonEscape(uint32_t character) {
  switch (character) {
    case '"':
      return "\\\"";
    case '\\':
      return "\\\\";
    case '\n':
      return "\\n";
    case '\r':
      return "\\r";
    case '\t':
      return "\\t";
    default:
      return absl::StrFormat("\\u%04x", character);
  }
}

}  // namespace

CodePoints::CodePoints(std::vector<Range> ranges) {
  std::sort(ranges.begin(), ranges.end(), [](const Range& a, const Range& b) { return a.low < b.low; });
  std::vector<Range> merged;
  for (const Range& range : ranges) {
    if (!merged.empty() && range.low <= merged.back().high + 1) {
      merged.back().high = std::max(merged.back().high, range.high);
    } else {
      merged.push_back(range);
    }
  }
  for (const Range& range : merged) {  // surrogates are no characters
    if (range.low < 0xD800) {
      ranges_.push_back({range.low, std::min<uint32_t>(range.high, 0xD7FF)});
    }
    if (range.high > 0xDFFF) {
      ranges_.push_back({std::max<uint32_t>(range.low, 0xE000), range.high});
    }
  }
}

CodePoints CodePoints::Complement() const {
  std::vector<Range> rest;
  uint32_t next = 0;
  for (const Range& range : ranges_) {
    if (range.low > next) {
      rest.push_back({next, range.low - 1});
    }
    next = range.high + 1;
  }
  if (next <= kLast) {
    rest.push_back({next, kLast});
  }
  return CodePoints(std::move(rest));
}

CodePoints CodePoints::Without(const CodePoints& other) const {
  return Complement().With(other).Complement();
}

CodePoints CodePoints::With(const CodePoints& other) const {
  std::vector<Range> both = ranges_;
  both.insert(both.end(), other.ranges_.begin(), other.ranges_.end());
  return CodePoints(std::move(both));
}

bool CodePoints::Contains(uint32_t character) const {
  return std::any_of(ranges_.begin(), ranges_.end(),
                     [&](const Range& range) { return range.low <= character && character <= range.high; });
}

ByteGrammar::Part OneOf(ByteGrammar& grammar, const CodePoints& characters, TextEncoding encoding) {
  const ByteGrammar::Part whole = {grammar.NewState(), grammar.NewState()};
  CodePoints raw = characters;
  if (encoding == TextEncoding::kJsonString) {
    const CodePoints escaped({{0, 0x1F}, {'"', '"'}, {'\\', '\\'}});
    raw = characters.Without(escaped);
    for (const CodePoints::Range& range : escaped.ranges()) {
      for (uint32_t character = range.low; character <= range.high; ++character) {
        if (characters.Contains(character)) {
          const ByteGrammar::Part part = grammar.Bytes(JsonEscape(character));
          grammar.AddEpsilon(whole.start, part.start);
          grammar.AddEpsilon(part.end, whole.end);
        }
      }
    }
  }
  constexpr uint32_t kFirstOfLength[] = {0, 0x80, 0x800, 0x10000, kLast + 1};
  for (const CodePoints::Range& range : raw.ranges()) {
    for (int length = 0; length < 4; ++length) {
      const uint32_t low = std::max(range.low, kFirstOfLength[length]);
      const uint32_t high = std::min(range.high, kFirstOfLength[length + 1] - 1);
      if (low <= high) {
        AddUtf8(grammar, low, high, whole);
      }
    }
  }
  return whole;
}

}  // namespace arborist
