#include "verifier/finish_rule.h"

#include <gtest/gtest.h>

namespace arborist::verifier {
namespace {

constexpr TokenId kRun[] = {TokenId{5}, TokenId{6}, TokenId{7}, TokenId{6}};
constexpr TokenId kStop[] = {TokenId{9}, TokenId{6}};

TEST(FinishRuleTest, ARunWithoutAReasonIsKeptWhole) {
  const RunCut cut = CutRun(kRun, {.stop_ids = {}, .output_left = 5, .context_left = 5});
  EXPECT_EQ(cut.kept, 4);
  EXPECT_EQ(cut.reason, FinishReason::kNone);
}

TEST(FinishRuleTest, AStopIdInsideTheRunIsItsLastToken) {
  const RunCut cut = CutRun(kRun, {.stop_ids = kStop, .output_left = 9, .context_left = 9});
  EXPECT_EQ(cut.kept, 2);
  EXPECT_EQ(cut.reason, FinishReason::kStopId);
}

TEST(FinishRuleTest, MaxTokensCutsInsideTheRun) {
  const RunCut cut = CutRun(kRun, {.stop_ids = {}, .output_left = 3, .context_left = 9});
  EXPECT_EQ(cut.kept, 3);
  EXPECT_EQ(cut.reason, FinishReason::kMaxTokens);
}

TEST(FinishRuleTest, TheContextCutsInsideTheRun) {
  const RunCut cut = CutRun(kRun, {.stop_ids = {}, .output_left = 9, .context_left = 4});
  EXPECT_EQ(cut.kept, 4);
  EXPECT_EQ(cut.reason, FinishReason::kContextLimit);
}

TEST(FinishRuleTest, OnOneTokenAStopIdComesBeforeMaxTokensBeforeTheContext) {
  EXPECT_EQ(CutRun(kRun, {.stop_ids = kStop, .output_left = 2, .context_left = 2}).reason,
            FinishReason::kStopId);
  EXPECT_EQ(CutRun(kRun, {.stop_ids = {}, .output_left = 2, .context_left = 2}).reason,
            FinishReason::kMaxTokens);
}

TEST(FinishRuleTest, TheEarliestReasonWins) {
  const RunCut cut = CutRun(kRun, {.stop_ids = kStop, .output_left = 1, .context_left = 9});
  EXPECT_EQ(cut.kept, 1);
  EXPECT_EQ(cut.reason, FinishReason::kMaxTokens);
}

TEST(FinishRule, ARunIsCutWhereWhatWasChosenDoesNotCountUnlessItEndsBefore) {
  const std::vector<TokenId> run = {TokenId{1}, TokenId{2}, TokenId{3}, TokenId{4}};
  const auto cut = [&](FinishRule rule) {
    rule.context_left = 100;
    const RunCut made = CutRun(run, rule);
    return std::pair(made.kept, made.reason);
  };
  EXPECT_EQ(cut({.stop_ids = {}, .output_left = 9, .constraint_cut = 2}), std::pair(2, FinishReason::kNone));
  EXPECT_EQ(cut({.stop_ids = {}, .output_left = 2, .constraint_cut = 2}),
            std::pair(2, FinishReason::kMaxTokens));
  const TokenId stop{2};
  EXPECT_EQ(cut({.stop_ids = std::span(&stop, 1), .output_left = 9, .constraint_cut = 2}),
            std::pair(2, FinishReason::kStopId));
  EXPECT_EQ(cut({.stop_ids = std::span(&stop, 1), .output_left = 9, .constraint_cut = 1}),
            std::pair(1, FinishReason::kNone));
}

}  // namespace
}  // namespace arborist::verifier
