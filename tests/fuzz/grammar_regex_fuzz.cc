// Regular expressions and forbidden strings as constraints. Input: pattern, 0xFF, forbidden strings (0xFE
// between them), 0xFF, bytes that pick tokens. Texts are compared with PCRE2 where both dialects say the
// same, and forbidden strings with a search.
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>

#include "common/base/check.h"
#include "tests/fuzz/grammar_walk.h"

namespace arborist {
namespace {

// The part of the dialect that PCRE2 reads alike, on texts of printable ASCII. (Of `[]*` it forgets the
// star.)
bool IsCommonDialect(const std::string& pattern) {
  return pattern.find("[]") == std::string::npos &&
         pattern.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789 _\"'/,.|()[]*+?{}-^") ==
             std::string::npos;
}
bool IsPrintable(const std::string& text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return c >= ' ' && c <= '~'; });
}

// A pattern compiled by PCRE2 to match whole texts.
class OtherMatcher {
 public:
  explicit OtherMatcher(const std::string& pattern) {
    const std::string whole = "(?:" + pattern + ")\\z";
    int error = 0;
    size_t offset = 0;
    code_ = pcre2_compile(reinterpret_cast<const uint8_t*>(whole.data()), whole.size(),
                          PCRE2_ANCHORED | PCRE2_ALLOW_EMPTY_CLASS | PCRE2_NO_AUTO_POSSESS, &error, &offset,
                          nullptr);
    context_ = pcre2_match_context_create(nullptr);
    pcre2_set_match_limit(context_, 20000);
    data_ = code_ == nullptr ? nullptr : pcre2_match_data_create(1, nullptr);
  }
  ~OtherMatcher() {
    pcre2_match_data_free(data_);
    pcre2_match_context_free(context_);
    pcre2_code_free(code_);
  }
  OtherMatcher(const OtherMatcher&) = delete;
  OtherMatcher& operator=(const OtherMatcher&) = delete;

  // Whether it matches; nothing if it cannot say.
  std::optional<bool> Matches(const std::string& text) const {
    if (code_ == nullptr) {
      return std::nullopt;
    }
    const int found =
        pcre2_match(code_, reinterpret_cast<const uint8_t*>(text.data()), text.size(), 0, 0, data_, context_);
    if (found < 0 && found != PCRE2_ERROR_NOMATCH) {
      return std::nullopt;
    }
    return found >= 0;
  }

 private:
  pcre2_code* code_ = nullptr;
  pcre2_match_context* context_ = nullptr;
  pcre2_match_data* data_ = nullptr;
};

// Whether the constraint accepts `text`, byte by byte; nothing if that is too much work for it.
std::optional<bool> Accepts(const Constraint& constraint, const std::string& text) {
  std::optional<Constraint::State> state = constraint.Start();
  for (size_t i = 0; i < text.size() && state.has_value(); ++i) {
    bool too_much = false;
    state = constraint.Advance(*state, TokenId{static_cast<uint8_t>(text[i])}, &too_much);
    if (too_much) {
      return std::nullopt;
    }
  }
  return state.has_value() && constraint.Accepts(*state);
}

void CheckAgainstOther(const std::string& pattern, const std::string& text) {
  if (pattern.empty() || !IsCommonDialect(pattern)) {
    return;
  }
  const OtherMatcher other(pattern);
  const auto compiled = Constraint::Compile({.regex = pattern}, fuzz::SmallVocabulary());
  if (!compiled.ok()) {
    return;
  }
  for (size_t length = 0; length <= std::min<size_t>(text.size(), 24); ++length) {
    const std::string start = text.substr(0, length);
    if (!IsPrintable(start)) {
      return;
    }
    const std::optional<bool> matches = other.Matches(start), accepts = Accepts(**compiled, start);
    Check(!matches.has_value() || matches == accepts || !accepts.has_value(),
          "texts that match are those that match");
  }
}

void CheckForbidden(const std::vector<std::string>& words, fuzz::FuzzInput input) {
  const std::string text(input.rest().substr(0, 64));
  const auto compiled = Constraint::Compile({.bad_words = words}, fuzz::SmallVocabulary());
  if (!compiled.ok()) {
    return;
  }
  const auto holds_one = [&](const std::string& part) {
    return std::any_of(words.begin(), words.end(),
                       [&](const std::string& word) { return part.find(word) != std::string::npos; });
  };
  for (size_t length = 0; length <= text.size(); ++length) {
    const std::string start = text.substr(0, length);
    Check(Accepts(**compiled, start) == !holds_one(start), "what holds a forbidden string is forbidden");
  }
}

}  // namespace
}  // namespace arborist

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace arborist;
  fuzz::FuzzInput input(data, size);
  const std::string pattern(input.Until('\xFF'));
  const std::vector<std::string> words = fuzz::SplitAt(input.Until('\xFF'), '\xFE');
  CheckAgainstOther(pattern, std::string(input.rest()));
  CheckForbidden(words, input);
  const auto accepted = [&](const std::string& text) {
    for (const std::string& word : words) {
      Check(text.find(word) == std::string::npos, "a forbidden string was written");
    }
  };
  fuzz::WalkUnderMasks({.regex = pattern, .bad_words = words}, input, accepted);
  return 0;
}
