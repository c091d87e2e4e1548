#include "coordinator/stop_rule.h"

#include <gtest/gtest.h>

#include <random>

namespace arborist::coordinator {
namespace {

TEST(StopRuleTest, HoldsBackTheLongestPossibleBeginningOfAStop) {
  StopRule rule({"</end>", "STOP"});
  EXPECT_EQ(rule.Append("abc</e").text, "abc");
  EXPECT_EQ(rule.Append("nX").text, "</enX");
  EXPECT_EQ(rule.Append("ST").text, "");
  EXPECT_EQ(rule.Flush(), "ST");
}

TEST(StopRuleTest, AStopAcrossPiecesIsFoundAndLeftOut) {
  StopRule rule({"</end>"});
  EXPECT_EQ(rule.Append("abc<<").text, "abc<");
  const StopRule::Result result = rule.Append("/end>more");
  EXPECT_EQ(result.text, "");
  EXPECT_EQ(result.stop, 0);
}

TEST(StopRuleTest, TheFirstCompleteStopCountsAndTheLongestOfThose) {
  EXPECT_EQ(StopRule({"abcd", "bc"}).Append("xabcd").stop, 1);
  const StopRule::Result result = StopRule({"cd", "abcd"}).Append("xabcd");
  EXPECT_EQ(result.stop, 1);
  EXPECT_EQ(result.text, "x");
}

TEST(StopRuleTest, WithoutStopsNothingIsHeldBack) {
  StopRule rule({});
  EXPECT_EQ(rule.Append("anything").text, "anything");
}

TEST(StopRuleTest, TheResultDoesNotDependOnHowTheTextIsCut) {
  std::mt19937 random(11);
  for (int round = 0; round < 3000; ++round) {
    const auto word = [&](size_t least, size_t most) {
      std::string text;
      for (size_t i = least + random() % (most - least + 1); i > 0; --i) {
        text.push_back("ab"[random() % 2]);
      }
      return text;
    };
    const std::vector<std::string> stops = {word(2, 6), word(3, 7)};
    const std::string text = word(0, 30);
    // By definition: the least end, then the least begin.
    size_t best_end = std::string::npos, best_begin = 0;
    for (const std::string& stop : stops) {
      const size_t begin = text.find(stop);
      if (begin != std::string::npos &&
          (begin + stop.size() < best_end || (begin + stop.size() == best_end && begin < best_begin))) {
        best_end = begin + stop.size();
        best_begin = begin;
      }
    }
    StopRule rule(stops);
    std::string got;
    bool stopped = false;
    for (size_t at = 0; at < text.size() && !stopped;) {
      const size_t count = 1 + random() % 5;
      const StopRule::Result result = rule.Append(std::string_view(text).substr(at, count));
      got += result.text;
      stopped = result.stop >= 0;
      at += count;
    }
    if (!stopped) {
      got += rule.Flush();
    }
    ASSERT_EQ(stopped, best_end != std::string::npos) << text;
    ASSERT_EQ(got, stopped ? text.substr(0, best_begin) : text) << text << " " << stops[0] << " " << stops[1];
  }
}

}  // namespace
}  // namespace arborist::coordinator
