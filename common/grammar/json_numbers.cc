// The numbers of JsonText.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/grammar/json_text.h"

namespace arborist {
namespace {

constexpr int kMaxDigits = 18;
constexpr int kMaxExponentDigits = 2;

}  // namespace

JsonText::Part JsonText::Digits(int least, int most) {
  Part digits = grammar_.Nothing();
  const int32_t end = grammar_.NewState();
  for (int i = 0; i <= most; ++i) {
    if (i >= least) {
      grammar_.AddEpsilon(digits.end, end);
    }
    if (i < most) {
      digits = grammar_.Then(digits, grammar_.Range('0', '9'));
    }
  }
  return {digits.start, end};
}

// Texts of as many digits as both bounds have, in between them: one path keeps to each bound, what leaves it
// is free.
void JsonText::FixedDigits(const std::string& low, const std::string& high, Part whole) {
  int32_t both = whole.start;
  int32_t at_low = -1;  // paths that have left the other bound
  int32_t at_high = -1;
  const auto count = static_cast<int>(low.size());
  for (int i = 0; i < count; ++i) {
    const int left = count - i - 1;
    const auto free_from = [&](int32_t from, char first, char last) {
      if (from >= 0 && first <= last) {
        const Part rest = Digits(left, left);
        grammar_.AddEdge(from, first, last, rest.start);
        grammar_.AddEpsilon(rest.end, whole.end);
      }
    };
    const auto step = [&](int32_t from, char digit) {
      const int32_t to = grammar_.NewState();
      grammar_.AddEdge(from, digit, digit, to);
      return to;
    };
    free_from(at_low, static_cast<char>(low[i] + 1), '9');
    free_from(at_high, '0', static_cast<char>(high[i] - 1));
    at_low = at_low >= 0 ? step(at_low, low[i]) : -1;
    at_high = at_high >= 0 ? step(at_high, high[i]) : -1;
    if (both >= 0) {
      if (low[i] == high[i]) {
        both = step(both, low[i]);
      } else {
        free_from(both, static_cast<char>(low[i] + 1), static_cast<char>(high[i] - 1));
        at_low = step(both, low[i]);
        at_high = step(both, high[i]);
        both = -1;
      }
    }
  }
  for (const int32_t last : {both, at_low, at_high}) {
    if (last >= 0) {
      grammar_.AddEpsilon(last, whole.end);
    }
  }
}

JsonText::Part JsonText::Natural(int64_t low, int64_t high) {
  const Part whole = Never();
  int64_t first = 0;  // of the numbers with this many digits
  int64_t last = 9;
  for (int digits = 1; digits <= kMaxDigits; ++digits) {
    const int64_t from = std::max(low, first);
    const int64_t to = std::min(high, last);
    if (from <= to) {
      FixedDigits(absl::StrCat(from), absl::StrCat(to), whole);
    }
    first = last + 1;
    last = digits < kMaxDigits ? first * 10 - 1 : last;
  }
  return whole;
}

JsonText::Part JsonText::Integer(int64_t low, int64_t high) {
  std::vector<Part> parts = {Never()};
  if (high >= 0) {
    parts.push_back(Natural(std::max<int64_t>(low, 0), high));
  }
  if (low < 0) {
    parts.push_back(grammar_.Then(grammar_.Bytes("-"), Natural(std::max<int64_t>(1, -high), -low)));
  }
  return grammar_.Either(parts);
}

JsonText::Part JsonText::Number(int64_t low, int64_t high) {
  const auto fraction = [&] {
    return grammar_.Optional(grammar_.Then(grammar_.Bytes("."), Digits(1, kMaxDigits)));
  };
  std::vector<Part> parts = {Integer(low, high)};
  if (high > 0) {  // n.f lies below n + 1
    parts.push_back(grammar_.Then(Natural(std::max<int64_t>(low, 0), high - 1), fraction()));
  }
  if (low < 0) {
    parts.push_back(grammar_.Then(grammar_.Bytes("-"),
                                  grammar_.Then(Natural(std::max<int64_t>(0, -high), -low - 1), fraction())));
  }
  return grammar_.Either(parts);
}

JsonText::Part JsonText::Integer() {
  const Part natural = grammar_.Either(
      {grammar_.Bytes("0"), grammar_.Then(grammar_.Range('1', '9'), Digits(0, kMaxDigits - 1))});
  return grammar_.Then(grammar_.Optional(grammar_.Bytes("-")), natural);
}

JsonText::Part JsonText::Number() {
  const Part fraction = grammar_.Then(grammar_.Bytes("."), Digits(1, kMaxDigits));
  const Part sign = grammar_.Optional(grammar_.Either({grammar_.Bytes("+"), grammar_.Bytes("-")}));
  const Part exponent = grammar_.Then(grammar_.Either({grammar_.Bytes("e"), grammar_.Bytes("E")}),
                                      grammar_.Then(sign, Digits(1, kMaxExponentDigits)));
  return grammar_.Then(Integer(), grammar_.Then(grammar_.Optional(fraction), grammar_.Optional(exponent)));
}

}  // namespace arborist
