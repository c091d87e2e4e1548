#include "common/tokenizer/pattern.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace arborist {
namespace {

using ::testing::HasSubstr;

std::vector<std::string> Matches(std::string_view pattern, std::string_view text) {
  const auto compiled = Pattern::Compile(pattern, false);
  EXPECT_TRUE(compiled.ok()) << compiled.status();
  Matcher matcher(*compiled);
  std::vector<ByteRange> ranges;
  EXPECT_TRUE(matcher.FindAll(text, ranges).ok());
  std::vector<std::string> out;
  for (const ByteRange& range : ranges) {
    out.emplace_back(text.substr(range.begin, range.end - range.begin));
  }
  return out;
}

using Texts = std::vector<std::string>;

TEST(PatternTest, SpaceIsUnicodeWhiteSpaceAndNothingElse) {
  EXPECT_EQ(Matches("\\s+", "a\u00a0\u3000b\u180ec\u0085"), (Texts{"\u00a0\u3000", "\u0085"}));
  EXPECT_EQ(Matches("[^\\s]+", "a\u180eb c"), (Texts{"a\u180eb", "c"}));
  EXPECT_EQ(Matches("\\S+", "a\u180eb c"), (Texts{"a\u180eb", "c"}));
}

TEST(PatternTest, IntersectionsBecomeLookaheads) {
  EXPECT_EQ(Matches("[\\p{L}&&[^\\p{Han}]]+", "ab漢c"), (Texts{"ab", "c"}));
  EXPECT_EQ(Matches("[\\p{L}&&[a-c]]", "xbz"), (Texts{"b"}));
}

TEST(PatternTest, BracketsInClassesKeepTheirMeaning) {
  EXPECT_EQ(Matches("[\\[\\]^]+", "a[]^b"), (Texts{"[]^"}));
  EXPECT_EQ(Matches("[]a]+", "x]a"), (Texts{"]a"}));
  EXPECT_EQ(Matches("[[:digit:]x]+", "a12x"), (Texts{"12x"}));
}

TEST(PatternTest, AScriptIsTheScriptWithoutItsExtensions) {
  EXPECT_EQ(Matches("\\p{Han}+", "漢、字\u3005"), (Texts{"漢", "字\u3005"}));
  EXPECT_EQ(Matches("[^\\p{^Han}]|\\P{Han}", "漢、"), (Texts{"漢", "、"}));
}

TEST(PatternTest, WordsAndNumberedCharactersAreThoseOfTheDialect) {
  EXPECT_EQ(Matches("\\w+", "a\u0301_\u203f1\u00bd-\u200dz"), (Texts{"a\u0301_\u203f1\u00bd", "z"}));
  EXPECT_EQ(Matches("\\w+", "x\u2460\u24b6\u2167"), (Texts{"x", "\u24b6\u2167"}));
  EXPECT_EQ(Matches("[\\w-]+|\\W", "a-b c"), (Texts{"a-b", " ", "c"}));
  EXPECT_EQ(Matches("[\\u0062\\u6f22]+", "ab漢"), (Texts{"b漢"}));
  EXPECT_EQ(Matches("a{2}b{,x}|\\p{L}{1,2}?|(?i:K)(?-i:x)", "aab{,x}"), (Texts{"aab{,x}"}));
  EXPECT_EQ(Matches("[[:space:]]+", "a\u180e \u00a0b"), (Texts{" \u00a0"}));
}

TEST(PatternTest, AnEmptyMatchAfterAMatchDoesNotCount) {
  EXPECT_EQ(Matches("a*", "baac"), (Texts{"", "aa", ""}));
}

TEST(PatternTest, FormsThatWouldMeanSomethingElseAreRefused) {
  for (const char* pattern : {"[a[b]]", "[a&&b]", "[^a&&[b]]", "\\h", "[\\S]", "[a", "\\", "\\bx", "[\\W]",
                              "\\u12", "a{2}+", "a{,2}", "(?m:a.b)", "(?x)a", "[[:alpha:]]"}) {
    const auto compiled = Pattern::Compile(pattern, false);
    EXPECT_EQ(compiled.status().code(), absl::StatusCode::kInvalidArgument) << pattern;
    EXPECT_THAT(std::string(compiled.status().message()), HasSubstr("expected")) << pattern;
  }
}

TEST(PatternTest, APatternThatExplodesIsStopped) {
  const auto compiled = Pattern::Compile("(a+)+$x", false);
  ASSERT_TRUE(compiled.ok());
  Matcher matcher(*compiled);
  std::vector<ByteRange> ranges;
  EXPECT_EQ(matcher.FindAll(std::string(40, 'a') + "\nx", ranges).code(),
            absl::StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace arborist
