#include "common/grammar/forbidden_strings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "common/grammar/constraint.h"
#include "common/grammar/testing/walks.h"

namespace arborist {
namespace {

using ::testing::HasSubstr;

TEST(ForbiddenStrings, FindsExactlyWhatASearchFinds) {
  std::mt19937 random(1);
  for (int round = 0; round < 200; ++round) {
    const auto word = [&](size_t least, size_t spread) {
      std::string text;
      for (size_t n = least + random() % spread; n > 0; --n) {
        text += static_cast<char>('a' + random() % 2);
      }
      return text;
    };
    std::vector<std::string> strings;
    for (size_t n = 1 + random() % 4; n > 0; --n) {
      strings.push_back(word(1, 5));
    }
    const auto forbidden = ForbiddenStrings::Create(strings);
    ASSERT_TRUE(forbidden.ok());
    const std::string text = word(0, 12);
    int32_t state = 0;
    std::string so_far;
    for (const char byte : text) {
      state = forbidden->Next(state, static_cast<uint8_t>(byte));
      so_far += byte;
      const bool found = std::any_of(strings.begin(), strings.end(), [&](const std::string& s) {
        return so_far.find(s) != std::string::npos;
      });
      ASSERT_EQ(state == ForbiddenStrings::kDead, found) << so_far;
      if (found) {
        break;
      }
    }
  }
}

TEST(ForbiddenStrings, HoldAcrossTokensAndLeaveSpecialTokensAlone) {
  ConstraintSpec spec;
  spec.bad_words = {"name12", "\xC3\xA9"};
  spec.stop_ids = {testing::TestStop()};
  const auto vocabulary = testing::TestVocabulary();
  const auto constraint = Constraint::Compile(spec, vocabulary);
  ASSERT_TRUE(constraint.ok());
  std::mt19937 random(4);
  EXPECT_TRUE(testing::AcceptsText(**constraint, *vocabulary, "name1 name2 anything \xFF", random));
  EXPECT_FALSE(testing::AcceptsText(**constraint, *vocabulary, "a name123", random));
  EXPECT_FALSE(testing::AcceptsText(**constraint, *vocabulary, "caf\xC3\xA9", random));
  const auto state = (*constraint)->Advance((*constraint)->Start(), testing::TestSpecial());
  EXPECT_TRUE(state.has_value());
  EXPECT_TRUE((*constraint)->Advance(*state, testing::TestStop()).has_value());
}

TEST(ForbiddenStrings, IntersectWithAGrammar) {
  ConstraintSpec spec;
  spec.regex = "[abc]{6}";
  spec.bad_words = {"ab", "ca", "bb"};
  spec.stop_ids = {testing::TestStop()};
  const auto vocabulary = testing::TestVocabulary();
  const auto constraint = Constraint::Compile(spec, vocabulary);
  ASSERT_TRUE(constraint.ok());
  std::mt19937 random(5);
  for (int i = 0; i < 50; ++i) {
    const auto text = testing::RandomText(**constraint, *vocabulary, 20, random);
    ASSERT_TRUE(text.has_value());
    EXPECT_EQ(text->size(), 6);
    for (const std::string& word : spec.bad_words) {
      EXPECT_EQ(text->find(word), std::string::npos) << *text;
    }
  }
  spec.regex = "xaby";  // demands what is forbidden: a dead end, and nothing is allowed there
  const auto contradiction = Constraint::Compile(spec, vocabulary);
  ASSERT_TRUE(contradiction.ok());
  EXPECT_FALSE(testing::RandomText(**contradiction, *vocabulary, 20, random).has_value());
}

TEST(ForbiddenStrings, TheMostOfTheLongestTakeHalfAMegabyte) {
  std::mt19937 random(6);
  std::vector<std::string> strings(ForbiddenStrings::kMaxStrings);
  for (std::string& text : strings) {
    for (size_t i = 0; i < ForbiddenStrings::kMaxBytes; ++i) {
      text += static_cast<char>(random());
    }
  }
  const auto forbidden = ForbiddenStrings::Create(strings);
  ASSERT_TRUE(forbidden.ok());
  EXPECT_LT(forbidden->bytes(), size_t{512} << 10);
  for (const std::string& text : strings) {
    int32_t state = 0;
    for (size_t i = 0; i < text.size(); ++i) {
      state = forbidden->Next(state, static_cast<uint8_t>(text[i]));
      ASSERT_EQ(state == ForbiddenStrings::kDead, i + 1 == text.size());
    }
  }
}

TEST(ForbiddenStrings, BoundsAreNamed) {
  EXPECT_THAT(std::string(ForbiddenStrings::Create({"a", ""}).status().message()), HasSubstr("bad_words[1]"));
  EXPECT_THAT(std::string(ForbiddenStrings::Create({std::string(257, 'a')}).status().message()),
              HasSubstr("257"));
  EXPECT_FALSE(ForbiddenStrings::Create(std::vector<std::string>(129, "a")).ok());
}

}  // namespace
}  // namespace arborist
