#include "verifier/prompt_log_probs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

namespace arborist::verifier {
namespace {

using ::testing::ElementsAre;

constexpr int32_t kAll = std::numeric_limits<int32_t>::max();

// Of a prompt of `tokens`, the first values known: -1, -2 and so on.
PromptLogProbs Known(int32_t tokens, int32_t known) {
  PromptLogProbs log_probs(tokens);
  for (int32_t i = 1; i <= known; ++i) {
    const float value = -static_cast<float>(i);
    log_probs.Add({&value, 1});
  }
  return log_probs;
}

TEST(PromptLogProbsTest, WhoDoesNotAskOwesNothingAndTakesEverything) {
  const PromptLogProbs nobody;
  EXPECT_EQ(nobody.owed(), 0);
  EXPECT_FALSE(nobody.HasNews());
  EXPECT_EQ(nobody.RowsToTake(0, 100), kAll);
}

TEST(PromptLogProbsTest, APromptOfOneTokenHasNone) { EXPECT_EQ(PromptLogProbs(1).owed(), 0); }

TEST(PromptLogProbsTest, EveryValueIsToldOnceInOrderFromTheSecondTokenOn) {
  PromptLogProbs log_probs = Known(8, 5);
  EXPECT_EQ(log_probs.owed(), 2);
  PromptLogProbs::News news = log_probs.TakeNews(3);
  EXPECT_EQ(news.first_position, 1);
  EXPECT_THAT(news.log_probs, ElementsAre(-1, -2, -3));
  news = log_probs.TakeNews(3);
  EXPECT_EQ(news.first_position, 4);
  EXPECT_THAT(news.log_probs, ElementsAre(-4, -5));
  EXPECT_FALSE(log_probs.HasNews());
  const float last[] = {-6, -7};
  log_probs.Add(last);
  news = log_probs.TakeNews(3);
  EXPECT_EQ(news.first_position, 6);
  EXPECT_THAT(news.log_probs, ElementsAre(-6, -7));
  EXPECT_EQ(log_probs.owed(), 0);
}

TEST(PromptLogProbsTest, NoRowIsTakenWhoseValueNobodyKnows) {
  const PromptLogProbs log_probs(300);
  EXPECT_EQ(log_probs.RowsToTake(0, 300), 0);
  EXPECT_EQ(log_probs.RowsToTake(100, 300), 100);
  EXPECT_EQ(log_probs.RowsToTake(299, 300), kAll);
  // The value of a row is that of the next token.
  EXPECT_EQ(log_probs.RowsToTake(299, 65), 64);
  EXPECT_EQ(log_probs.RowsToTake(299, 64), 63);
  EXPECT_EQ(log_probs.RowsToTake(299, 0), 0);
  EXPECT_EQ(Known(300, 80).RowsToTake(0, 300), 80);
  EXPECT_EQ(Known(300, 299).RowsToTake(0, 0), kAll);
}

TEST(PromptLogProbsTest, ValuesOfCommonTokensAreTakenOver) {
  PromptLogProbs log_probs(10);
  log_probs.Take(Known(20, 15), 6);
  EXPECT_EQ(log_probs.known(), 5);
  log_probs.Take(Known(20, 15), 4);
  EXPECT_EQ(log_probs.known(), 5) << "nothing is forgotten";
  log_probs.Take(Known(20, 15), 16);
  EXPECT_EQ(log_probs.known(), 9);
  EXPECT_EQ(log_probs.TakeNews(20).log_probs.back(), -9);
  PromptLogProbs nobody;
  nobody.Take(Known(20, 15), 16);
  EXPECT_FALSE(nobody.HasNews());
}

TEST(PromptLogProbsTest, AValueThatIsComputedAgainIsNotToldAgain) {
  PromptLogProbs log_probs = Known(10, 6);
  (void)log_probs.TakeNews(20);
  log_probs.BeginAt(4);
  EXPECT_EQ(log_probs.owed(), 5);
  const float again[] = {-5, -6, -7};
  log_probs.Add(again);
  const PromptLogProbs::News news = log_probs.TakeNews(20);
  EXPECT_EQ(news.first_position, 7);
  EXPECT_THAT(news.log_probs, ElementsAre(-7));
}

TEST(PromptLogProbsTest, WhereAllAreKnownAPrefillOwesNothingWhereverItBegins) {
  PromptLogProbs log_probs = Known(10, 9);
  log_probs.BeginAt(2);
  EXPECT_EQ(log_probs.owed(), 0);
  EXPECT_EQ(log_probs.known(), 9);
}

TEST(PromptLogProbsDeathTest, ARowIsNotSkippedWhoseValueIsOwed) {
  PromptLogProbs log_probs = Known(10, 6);
  EXPECT_DEATH(log_probs.BeginAt(7), "owed");
}

}  // namespace
}  // namespace arborist::verifier
