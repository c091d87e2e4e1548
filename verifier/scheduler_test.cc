#include "verifier/scheduler.h"

#include <gtest/gtest.h>

#include <numeric>
#include <random>

namespace arborist::verifier {
namespace {

const StepLimits kLimits{.max_rows = 100, .max_logits_rows = 80, .max_tree_rows = 65, .prefill_chunk = 32};

StepPlan Plan(std::vector<int> trees, std::vector<int> prompts, const StepLimits& limits = kLimits) {
  StepPlan plan;
  PlanStep(limits, trees, prompts, plan);
  return plan;
}

int ChunkRows(const StepPlan& plan) {
  int rows = 0;
  for (const StepPlan::Share& share : plan.chunks) {
    rows += share.rows;
  }
  return rows;
}

TEST(SchedulerTest, TreesComeFirstAndPromptsTakeTheRest) {
  const StepPlan plan = Plan({17, 1, 33}, {500, 40});
  EXPECT_EQ(plan.trees, (std::vector<int>{0, 1, 2}));
  ASSERT_EQ(plan.chunks.size(), 1u);
  EXPECT_EQ(plan.chunks[0].index, 0);
  EXPECT_EQ(plan.chunks[0].rows, 32);
}

TEST(SchedulerTest, ShortPromptsShareAChunk) {
  const StepPlan plan = Plan({}, {10, 5, 400});
  ASSERT_EQ(plan.chunks.size(), 3u);
  EXPECT_EQ(plan.chunks[1].rows, 5);
  EXPECT_EQ(plan.chunks[2].rows, 17);
}

TEST(SchedulerTest, ATreeThatDoesNotFitWaitsAndASmallerOnePassesIt) {
  EXPECT_EQ(Plan({60, 65, 9}, {}).trees, (std::vector<int>{0, 2}));
  EXPECT_EQ(Plan({65, 9}, {}).trees, (std::vector<int>{0, 1}));
}

TEST(SchedulerTest, TreesLeaveRowsToAWaitingPrompt) {
  const StepPlan plan = Plan({65, 15}, {7});
  EXPECT_EQ(plan.trees, (std::vector<int>{0}));
  ASSERT_EQ(plan.chunks.size(), 1u);
  EXPECT_EQ(plan.chunks[0].rows, 7);
}

TEST(SchedulerTest, NothingWaitingIsAnEmptyPlan) {
  const StepPlan plan = Plan({}, {});
  EXPECT_TRUE(plan.trees.empty());
  EXPECT_TRUE(plan.chunks.empty());
}

TEST(SchedulerTest, APromptThatGoesOnEndsItsStepWhereNothingIsPadded) {
  const StepLimits limits{.max_rows = 2080,
                          .max_logits_rows = 2080,
                          .max_tree_rows = 65,
                          .prefill_chunk = 512,
                          .row_bounds = {1, 2, 4, 9, 17, 33, 65, 129, 256, 512, 1024, 2048, 2080}};
  const std::vector<int> roots(32, 1);
  EXPECT_EQ(ChunkRows(Plan(roots, {3000}, limits)), 512 - 32);
  EXPECT_EQ(ChunkRows(Plan(roots, {300, 300}, limits)), 512 - 32);
  EXPECT_EQ(ChunkRows(Plan({}, {3000}, limits)), 512);
  // All that is left, or more than half as many rows: those may be padded.
  EXPECT_EQ(ChunkRows(Plan(roots, {490}, limits)), 490);
  EXPECT_EQ(ChunkRows(Plan({65, 65, 65, 60}, {3000}, limits)), 512 - 255);
  EXPECT_EQ(ChunkRows(Plan({65, 65, 65, 62}, {3000}, limits)), 512);
}

TEST(SchedulerTest, EveryPlanKeepsTheLimitsAndMovesTheOldestOfBothKinds) {
  std::mt19937 random(std::random_device{}());
  StepLimits bounded = kLimits;
  bounded.row_bounds = {1, 2, 4, 9, 17, 33, 65, 80, 100};
  for (int round = 0; round < 2000; ++round) {
    std::vector<int> trees(random() % 6);
    std::vector<int> prompts(random() % 6);
    for (int& rows : trees) {
      rows = 1 + static_cast<int>(random() % 65);
    }
    for (int& rows : prompts) {
      rows = 1 + static_cast<int>(random() % 200);
    }
    const StepPlan plan = Plan(trees, prompts, round % 2 == 0 ? kLimits : bounded);
    int tree_rows = 0;
    for (const int index : plan.trees) {
      tree_rows += trees[index];
    }
    for (const StepPlan::Share& share : plan.chunks) {
      EXPECT_GE(share.rows, 1);
      EXPECT_LE(share.rows, prompts[share.index]);
    }
    const int chunk_rows = ChunkRows(plan);
    EXPECT_LE(tree_rows, kLimits.max_logits_rows);
    EXPECT_LE(chunk_rows, kLimits.prefill_chunk);
    EXPECT_LE(tree_rows + chunk_rows, kLimits.max_rows);
    EXPECT_TRUE(trees.empty() || (!plan.trees.empty() && plan.trees[0] == 0));
    EXPECT_TRUE(prompts.empty() || (!plan.chunks.empty() && plan.chunks[0].index == 0));
  }
}

}  // namespace
}  // namespace arborist::verifier
