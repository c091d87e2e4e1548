#include "common/grammar/regex.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <random>
#include <regex>

#include "common/grammar/constraint.h"
#include "common/grammar/testing/walks.h"

namespace arborist {
namespace {

using ::testing::HasSubstr;

absl::StatusOr<std::shared_ptr<const Constraint>> Compile(const std::string& regex) {
  ConstraintSpec spec;
  spec.regex = regex;
  spec.stop_ids = {testing::TestStop()};
  return Constraint::Compile(spec, testing::TestVocabulary());
}

bool Matches(const std::string& regex, const std::string& text) {
  static std::mt19937 random(7);
  const auto constraint = Compile(regex);
  EXPECT_TRUE(constraint.ok()) << constraint.status();
  return constraint.ok() && testing::AcceptsText(**constraint, *testing::TestVocabulary(), text, random);
}

TEST(Regex, MatchesTheWholeText) {
  EXPECT_TRUE(Matches("abc", "abc"));
  EXPECT_FALSE(Matches("abc", "abcd"));
  EXPECT_FALSE(Matches("abc", "ab"));
  EXPECT_TRUE(Matches("^abc$|^x", "x"));
  EXPECT_TRUE(Matches("a*", ""));
  EXPECT_TRUE(Matches("(a|b){2,3}?c", "abac"));
  EXPECT_FALSE(Matches("(a|b){2,3}c", "ac"));
  EXPECT_TRUE(Matches("a{2,}", "aaaaa"));
  EXPECT_TRUE(Matches("a{0}b", "b"));
  EXPECT_TRUE(Matches("{a}", "{a}"));
  EXPECT_TRUE(Matches("(?:x(?<name>y))+", "xyxy"));
  EXPECT_TRUE(Matches(R"(\{"a": \d+\})", R"({"a": 12})"));
}

TEST(Regex, ClassesAreSetsOfCharacters) {
  EXPECT_TRUE(Matches("[^a-c]", "\xF0\x9F\x98\x80"));
  EXPECT_FALSE(Matches("[^a-c]", "b"));
  EXPECT_TRUE(Matches("[\xC3\xA0-\xC3\xBF]+", "\xC3\xA9\xC3\xA8"));
  EXPECT_FALSE(Matches("[\xC3\xA0-\xC3\xBF]+", "\xC3\x9F"));
  EXPECT_TRUE(Matches("[\\d_-]+", "1-_2"));
  EXPECT_TRUE(Matches("[\\]-]?", "-"));
  EXPECT_TRUE(Matches(".", "\xE4\xBD\xA0"));
  EXPECT_FALSE(Matches(".", "\n"));
  EXPECT_FALSE(Matches(".", "\xE4\xBD"));
  EXPECT_FALSE(Matches("[^a]", "\xED\xA0\x80")) << "a surrogate is no character";
  EXPECT_TRUE(Matches("\\u{1F600}\\uD83D\\uDE00\\x41",
                      "\xF0\x9F\x98\x80\xF0\x9F\x98\x80"
                      "A"));
  EXPECT_TRUE(Matches("\\s\\S\\w\\W\\D", " a_-x"));
}

TEST(Regex, AgreesWithStdRegexOnRandomExpressions) {
  std::mt19937 random(1);
  const std::string letters = "abc";
  const std::function<std::string(int)> make = [&](int depth) -> std::string {
    switch (random() % (depth > 3 ? 2 : 7)) {
      case 0:
        return std::string(1, letters[random() % 3]);
      case 1:
        return random() % 2 == 0 ? "[ab]" : "[^a]";
      case 2:
      case 3:
        return make(depth + 1) + make(depth + 1);
      case 4:
        return "(" + make(depth + 1) + "|" + make(depth + 1) + ")";
      case 5:
        return "(" + make(depth + 1) + ")" + std::string(1, "*+?"[random() % 3]);
      default:
        return "(" + make(depth + 1) + "){1,2}";
    }
  };
  const auto vocabulary = testing::TestVocabulary();
  for (int round = 0; round < 60; ++round) {
    const std::string pattern = make(0);
    const auto constraint = Compile(pattern);
    ASSERT_TRUE(constraint.ok()) << constraint.status();
    const std::regex oracle(pattern);
    for (int i = 0; i < 30; ++i) {
      std::string text;
      for (size_t n = random() % 7; n > 0; --n) {
        text += letters[random() % 3];
      }
      ASSERT_EQ(testing::AcceptsText(**constraint, *vocabulary, text, random), std::regex_match(text, oracle))
          << pattern << " on " << text;
    }
  }
}

TEST(Regex, WalksUnderTheMaskEndInTextsThatMatch) {
  std::mt19937 random(2);
  const auto vocabulary = testing::TestVocabulary();
  for (const std::string pattern :
       {"(ab|ac)*d", "[a-f0-9]{8}(-[a-f0-9]{4}){3}", "(foo|bar|name)(, (foo|bar))*\\.",
        "-?\\d+(\\.\\d{1,3})?", "a|(b|[])c|[]"}) {
    std::string plain = pattern;
    const auto constraint = Compile(plain);
    if (!constraint.ok()) {
      ADD_FAILURE() << constraint.status();
      continue;
    }
    if (plain.find("[]") != std::string::npos) {
      plain = "a|bc";  // the empty class matches nothing, so what needs it is cut out
    }
    for (int i = 0; i < 50; ++i) {
      const auto text = testing::RandomText(**constraint, *vocabulary, 30, random);
      ASSERT_TRUE(text.has_value()) << pattern;
      EXPECT_TRUE(std::regex_match(*text, std::regex(plain))) << pattern << ": " << *text;
    }
  }
}

TEST(Regex, WhatNobodyCanContinueIsFinal) {
  const auto constraint = Compile("ab?");
  ASSERT_TRUE(constraint.ok());
  const auto a = (*constraint)->Advance((*constraint)->Start(), TokenId{'a'});
  ASSERT_TRUE(a.has_value());
  EXPECT_TRUE((*constraint)->Accepts(*a));
  EXPECT_EQ((*constraint)->AllowsAny(*a, {}, /*no_stops=*/true), true);
  const auto b = (*constraint)->Advance(*a, TokenId{'b'});
  ASSERT_TRUE(b.has_value());
  EXPECT_EQ((*constraint)->AllowsAny(*b, {}, /*no_stops=*/true), false);
  EXPECT_FALSE((*constraint)->Advance(*b, testing::TestSpecial()).has_value());
  EXPECT_FALSE((*constraint)->Advance((*constraint)->Start(), testing::TestStop()).has_value());
  EXPECT_FALSE((*constraint)->Advance(*b, TokenId{1'000'000}).has_value());
  EXPECT_FALSE((*constraint)->Advance(*b, TokenId{-1}).has_value());
}

TEST(Regex, ErrorsNameTheByte) {
  const std::pair<std::string, std::string> cases[] = {
      {"ab(?=c)", "byte 2"},     {"(a)\\1", "byte 3"},
      {"a\\b", "byte 1"},        {"(ab", "byte 0"},
      {"ab)", "byte 2"},         {"a**", "byte 2"},
      {"*a", "byte 0"},          {"[b-a]", "byte 1"},
      {"[ab", "byte 0"},         {"a{3,2}", "byte 1"},
      {"a(^b)", "byte 2"},       {"a$b", "byte 2"},
      {"\\p{L}", "byte 0"},      {"a\\", "byte 1"},
      {"\\ud800", "byte 0"},     {"[\\d-z]", "byte 1"},
      {"\\u{110000}", "byte 0"}, {"a{1,1000000}", "byte 1"},
      {"[[:alpha:]]", "byte 1"}, {"\xFF", "byte 0"},
      {"(?i)a", "byte 0"},       {std::string(5000, 'a'), "4096"},
      {"[]", "no text"},         {"\\01", "byte 0"},
      {"ab{,5}", "byte 2"},      {"{,}", "byte 0"},
  };
  for (const auto& [pattern, place] : cases) {
    const auto constraint = Compile(pattern);
    ASSERT_FALSE(constraint.ok()) << pattern;
    EXPECT_EQ(constraint.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(constraint.status().message()), HasSubstr(place)) << pattern;
    EXPECT_THAT(std::string(constraint.status().message()), HasSubstr("regex")) << pattern;
  }
}

TEST(Regex, WhatGrowsTooLargeIsRefusedSoon) {
  const auto start = std::chrono::steady_clock::now();
  for (const std::string pattern : {"((a{1,100000}){1,100000}){1,100000}", "(((){100000}){100000}){100000}",
                                    "(.{500}){500}", "((((a?){99}){99}){99}){99}", "(.?){2000}"}) {
    const auto constraint = Compile(pattern);
    ASSERT_FALSE(constraint.ok()) << pattern;
    EXPECT_THAT(std::string(constraint.status().message()), HasSubstr("states"));
  }
  EXPECT_FALSE(Compile(std::string(2000, '(') + std::string(2000, ')')).ok());
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20));
}

TEST(Regex, ManyOverlappingWaysStayFast) {
  const auto constraint = Compile("(a|aa|aaa|(a*)*)*((a?){20}){30}b");
  ASSERT_TRUE(constraint.ok()) << constraint.status();
  std::mt19937 random(3);
  EXPECT_TRUE(
      testing::AcceptsText(**constraint, *testing::TestVocabulary(), std::string(300, 'a') + "b", random));
}

TEST(Regex, AVocabularyWithoutANeededByteIsRefused) {
  ConstraintSpec spec;
  spec.regex = "[a-c]+";
  const auto constraint = Constraint::Compile(
      spec, std::make_shared<const TokenVocabulary>(std::vector<std::string>{"a", "b", "bc"}));
  ASSERT_FALSE(constraint.ok());
  EXPECT_THAT(std::string(constraint.status().message()), HasSubstr("0x63"));
}

}  // namespace
}  // namespace arborist
