#include "verifier/scheduler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

namespace arborist::verifier {
namespace {

const StepLimits kLimits{.max_rows = 100, .max_logits_rows = 80, .max_tree_rows = 65, .prefill_chunk = 32};
// Logits run out before rows do.
const StepLimits kManyRows{.max_rows = 200, .max_logits_rows = 80, .max_tree_rows = 65, .prefill_chunk = 32};

StepPlan PlanOf(std::vector<int> trees, std::vector<WaitingPrompt> prompts,
                const StepLimits& limits = kLimits) {
  std::vector<WaitingTree> waiting;
  for (const int rows : trees) {
    waiting.push_back({.rows = rows});
  }
  StepPlan plan;
  PlanStep(limits, waiting, prompts, plan);
  return plan;
}

// Of prompts that are not scored.
StepPlan Plan(std::vector<int> trees, const std::vector<int>& prompts, const StepLimits& limits = kLimits) {
  std::vector<WaitingPrompt> waiting;
  for (const int left : prompts) {
    waiting.push_back({.left = left});
  }
  return PlanOf(std::move(trees), std::move(waiting), limits);
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

TEST(SchedulerTest, ATreeWhoseHistoryDoesNotFitWaitsAndIsFirstInTheNextStep) {
  StepLimits limits = kLimits;
  limits.max_history_entries = 100;
  // As tickets do it: who was in a step is behind the others in the next.
  std::vector<int64_t> histories = {60, 50, 0, 40, 100};
  std::vector<std::vector<int64_t>> steps;
  for (int step = 0; step < 4; ++step) {
    std::vector<WaitingTree> waiting;
    for (const int64_t entries : histories) {
      waiting.push_back({.rows = 1, .history_entries = entries});
    }
    StepPlan plan;
    PlanStep(limits, waiting, {}, plan);
    std::vector<int64_t> taken, left;
    for (int i = 0; i < static_cast<int>(histories.size()); ++i) {
      const bool in_step = std::find(plan.trees.begin(), plan.trees.end(), i) != plan.trees.end();
      (in_step ? taken : left).push_back(histories[static_cast<size_t>(i)]);
    }
    steps.push_back(taken);
    left.insert(left.end(), taken.begin(), taken.end());
    histories = left;
  }
  EXPECT_EQ(steps, (std::vector<std::vector<int64_t>>{{60, 0, 40}, {50, 0, 40}, {100, 0}, {60, 40, 0}}));
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

TEST(SchedulerTest, AScoredPromptTakesRowsWithLogitsThatTreesLeave) {
  const StepPlan plan = PlanOf({65}, {{.left = 50, .scored = true}});
  EXPECT_EQ(plan.trees.size(), 1u);
  ASSERT_EQ(plan.chunks.size(), 1u);
  EXPECT_EQ(plan.chunks[0].rows, 15);
  EXPECT_TRUE(PlanOf({65, 10, 5}, {{.left = 50, .scored = true}}, kManyRows).chunks.empty());
  EXPECT_EQ(PlanOf({}, {{.left = 50, .scored = true}}).chunks[0].rows, 32);
}

TEST(SchedulerTest, ScoredChunksComeFirstInAStepAndTakeNothingFromAnOlderPrompt) {
  const StepPlan plan = PlanOf({}, {{.left = 20}, {.left = 8, .scored = true}, {.left = 9}});
  ASSERT_EQ(plan.chunks.size(), 3u);
  EXPECT_TRUE(plan.chunks[0].scored);
  EXPECT_EQ(plan.chunks[0].index, 1);
  EXPECT_EQ(plan.chunks[0].rows, 8);
  EXPECT_EQ(plan.chunks[1].index, 0);
  EXPECT_EQ(plan.chunks[1].rows, 20);
  EXPECT_EQ(plan.chunks[2].rows, 4);
}

TEST(SchedulerTest, APromptWithoutLogitsPassesAScoredOneThatHasToWait) {
  const StepPlan plan = PlanOf({65, 10, 5}, {{.left = 50, .scored = true}, {.left = 20}}, kManyRows);
  ASSERT_EQ(plan.chunks.size(), 1u);
  EXPECT_EQ(plan.chunks[0].index, 1);
  EXPECT_FALSE(plan.chunks[0].scored);
}

TEST(SchedulerTest, TreesLeaveAQuarterOfTheLogitsToAScoredPromptThatHasWaitedForLongest) {
  const StepPlan plan =
      PlanOf({40, 20, 15, 5}, {{.left = 50, .scored = true, .before_trees = true}}, kManyRows);
  EXPECT_EQ(plan.trees, (std::vector<int>{0, 1}));
  ASSERT_EQ(plan.chunks.size(), 1u);
  EXPECT_EQ(plan.chunks[0].rows, 20);
  // No more than it needs.
  const StepPlan little =
      PlanOf({40, 20, 15, 5}, {{.left = 2, .scored = true, .before_trees = true}}, kManyRows);
  EXPECT_EQ(little.trees, (std::vector<int>{0, 1, 2}));
  EXPECT_EQ(little.chunks[0].rows, 2);
}

TEST(SchedulerTest, NeitherScoredPromptsNorTreesStarveWhereTheLargestTreeTakesAllLogits) {
  StepLimits limits = kManyRows;
  limits.max_logits_rows = limits.max_tree_rows;
  // As tickets do it: who was in a step is the younger one in the next.
  bool prompt_is_older = false;
  int tree_steps = 0;
  int prompt_rows = 0;
  for (int step = 0; step < 10; ++step) {
    const StepPlan plan =
        PlanOf({65}, {{.left = 500, .scored = true, .before_trees = prompt_is_older}}, limits);
    tree_steps += plan.trees.empty() ? 0 : 1;
    prompt_rows += ChunkRows(plan);
    prompt_is_older = !plan.trees.empty();
  }
  EXPECT_EQ(tree_steps, 5);
  EXPECT_EQ(prompt_rows, 5 * 32);
}

TEST(SchedulerTest, EveryPlanKeepsTheLimitsAndMovesTheOldestOfBothKinds) {
  std::mt19937 random(std::random_device{}());
  StepLimits bounded = kLimits;
  bounded.row_bounds = {1, 2, 4, 9, 17, 33, 65, 80, 100};
  const StepLimits* const all_limits[] = {&kLimits, &bounded, &kManyRows};
  for (int round = 0; round < 6000; ++round) {
    const StepLimits& limits = *all_limits[round % 3];
    std::vector<int> trees(random() % 6);
    std::vector<WaitingPrompt> prompts(random() % 6);
    for (int& rows : trees) {
      rows = 1 + static_cast<int>(random() % 65);
    }
    const bool any_scored = random() % 2 == 0;
    for (WaitingPrompt& prompt : prompts) {
      prompt.left = 1 + static_cast<int>(random() % 200);
      prompt.scored = any_scored && random() % 2 == 0;
      prompt.before_trees = random() % 2 == 0;
    }
    const StepPlan plan = PlanOf(trees, prompts, limits);
    int tree_rows = 0;
    for (const int index : plan.trees) {
      tree_rows += trees[index];
    }
    int scored_rows = 0;
    bool oldest_moves = false;
    for (size_t i = 0; i < plan.chunks.size(); ++i) {
      const StepPlan::Share& share = plan.chunks[i];
      EXPECT_GE(share.rows, 1);
      EXPECT_LE(share.rows, prompts[share.index].left);
      EXPECT_EQ(share.scored, prompts[share.index].scored);
      EXPECT_TRUE(i == 0 || plan.chunks[i - 1].scored || !share.scored) << "scored ones first";
      scored_rows += share.scored ? share.rows : 0;
      oldest_moves |= share.index == 0;
    }
    const int chunk_rows = ChunkRows(plan);
    EXPECT_LE(tree_rows + scored_rows, limits.max_logits_rows);
    EXPECT_LE(chunk_rows, limits.prefill_chunk);
    EXPECT_LE(tree_rows + chunk_rows, limits.max_rows);
    EXPECT_TRUE(trees.empty() || any_scored || (!plan.trees.empty() && plan.trees[0] == 0));
    EXPECT_TRUE(prompts.empty() || (prompts[0].scored && !prompts[0].before_trees) || oldest_moves);
  }
}

}  // namespace
}  // namespace arborist::verifier
