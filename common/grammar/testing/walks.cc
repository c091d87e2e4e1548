#include "common/grammar/testing/walks.h"

#include <gtest/gtest.h>

namespace arborist::testing {
namespace {

const std::vector<std::string>& Pieces() {
  static const std::vector<std::string> pieces = {
      "{\"",      "\":",          "\", \"", "\"}",  "\",",   ": \"", "[[",    "]]",       "},",
      "[{",       "{}",           "[]",     "true", "false", "null", "tr",    "ue",       "name",
      "\"name\"", "00",           "12",     "123",  "-1",    ".5",   "e+1",   "ab",       "abc",
      "foo",      "bar",          "  ",     "\n  ", "\\n",   "\\\"", "\\u00", "\xC3\xA9", "\xE4\xBD",
      "\xA0\xE5", "\xF0\x9F\x98", "the ",   "]}",   "}}",    "\"]",  "2024-0"};
  return pieces;
}

bool Allowed(const Constraint::Mask& mask, int32_t token) {
  return (mask[token / 32] >> (token % 32) & 1) != 0;
}

}  // namespace

TokenId TestSpecial() { return TokenId{256 + static_cast<int32_t>(Pieces().size())}; }
TokenId TestStop() { return TokenId{Raw(TestSpecial()) + 1}; }

std::shared_ptr<const TokenVocabulary> TestVocabulary() {
  std::vector<std::string> bytes;
  for (int byte = 0; byte < 256; ++byte) {
    bytes.emplace_back(1, static_cast<char>(byte));
  }
  bytes.insert(bytes.end(), Pieces().begin(), Pieces().end());
  bytes.resize(bytes.size() + 2);  // special ones have no text
  return std::make_shared<const TokenVocabulary>(std::move(bytes));
}

bool AcceptsText(const Constraint& constraint, const TokenVocabulary& vocabulary, const std::string& text,
                 std::mt19937& random) {
  std::optional<bool> verdict;
  for (int round = 0; round < 4; ++round) {  // the first one goes byte by byte
    std::optional<Constraint::State> state = constraint.Start();
    for (size_t at = 0; at < text.size() && state.has_value();) {
      std::vector<int32_t> fitting;
      for (int32_t token = 0; token < vocabulary.size(); ++token) {
        const std::string& bytes = vocabulary.bytes(token);
        if (!bytes.empty() && text.compare(at, bytes.size(), bytes) == 0 &&
            (round > 0 || bytes.size() == 1)) {
          fitting.push_back(token);
        }
      }
      const int32_t token = fitting[random() % fitting.size()];
      const auto next = constraint.Advance(*state, TokenId{token});
      EXPECT_EQ(next.has_value(), Allowed(*constraint.AllowedTokens(*state), token)) << text << " at " << at;
      state = next;
      at += vocabulary.bytes(token).size();
    }
    const bool accepted = state.has_value() && constraint.Accepts(*state);
    if (accepted) {
      EXPECT_TRUE(Allowed(*constraint.AllowedTokens(*state), Raw(TestStop())));
      EXPECT_TRUE(constraint.Advance(*state, TestStop()).has_value());
    }
    EXPECT_EQ(verdict.value_or(accepted), accepted) << "tokenisations differ on " << text;
    verdict = accepted;
  }
  return *verdict;
}

namespace {

// Fewest bytes from `state` to the end by breadth-first search, or a token towards it.
std::optional<int32_t> TowardsEnd(const Constraint& constraint, const Constraint::State& start) {
  struct Reached {
    Constraint::State state;
    int32_t first;
  };
  std::vector<Reached> work = {{start, -1}};
  std::vector<std::pair<const StackSet*, int32_t>> seen = {{start.grammar.set.get(), start.forbidden}};
  for (size_t i = 0; i < work.size() && i < 4000; ++i) {
    for (int32_t byte = 0; byte < 256; ++byte) {
      const auto next = constraint.Advance(work[i].state, TokenId{byte});
      if (!next.has_value()) {
        continue;
      }
      const int32_t first = work[i].first < 0 ? byte : work[i].first;
      if (constraint.Accepts(*next)) {
        return first;
      }
      const std::pair<const StackSet*, int32_t> key = {next->grammar.set.get(), next->forbidden};
      if (std::find(seen.begin(), seen.end(), key) == seen.end()) {
        seen.push_back(key);
        work.push_back({*next, first});
      }
    }
  }
  return std::nullopt;
}

}  // namespace

std::optional<std::string> RandomText(const Constraint& constraint, const TokenVocabulary& vocabulary,
                                      int patience, std::mt19937& random) {
  std::string text;
  Constraint::State state = constraint.Start();
  for (int step = 0; step < patience + 20'000; ++step) {
    const auto mask = constraint.AllowedTokens(state);
    std::vector<int32_t> allowed;
    for (int32_t token = 0; token < vocabulary.size(); ++token) {
      if (Allowed(*mask, token)) {
        allowed.push_back(token);
      }
    }
    if (allowed.empty()) {
      return std::nullopt;
    }
    int32_t token = allowed[random() % allowed.size()];
    if (random() % 2 == 0) {  // most states allow some hundred characters; look at the others as often
      std::vector<int32_t> plain;
      for (const int32_t t : allowed) {
        if (t >= 256 || std::string_view("{}[]\",:0123456789-.e\\utrfnlsa").find(static_cast<char>(t)) !=
                            std::string_view::npos) {
          plain.push_back(t);
        }
      }
      token = plain.empty() ? token : plain[random() % plain.size()];
    }
    if (step >= patience) {
      if (Allowed(*mask, Raw(TestStop()))) {
        return text;
      }
      const std::optional<int32_t> towards = TowardsEnd(constraint, state);
      token = towards.value_or(token);
    }
    if (TokenId{token} == TestStop()) {
      return text;
    }
    const auto next = constraint.Advance(state, TokenId{token});
    EXPECT_TRUE(next.has_value()) << "the mask allows token " << token << " after " << text;
    if (!next.has_value()) {
      return std::nullopt;
    }
    text += vocabulary.bytes(token);
    state = *next;
  }
  return std::nullopt;
}

}  // namespace arborist::testing
