// Log-probabilities through a flow: aligned with the tokens, whatever cuts, repeats or replaces the path.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "coordinator/testing/flow_fixture.h"

namespace arborist::coordinator {
namespace {

using testing::ByteIds;
using testing::FakeRouter;
using testing::LogProbAt;
using testing::PromptLogProbAt;
using testing::RecordingSink;
using testing::RequestFlowTest;
using testing::TopAt;

class RequestFlowScoresTest : public RequestFlowTest {
 protected:
  RequestFlowScoresTest() {
    start_.sampling.log_probs = true;
    start_.sampling.top_log_probs = 3;
  }

  void Again() {
    router_ = FakeRouter();
    sink_ = RecordingSink();
  }
  void AskForPrompt(const std::string& prompt) {
    start_.prompt = ByteIds(prompt);
    start_.sampling.prompt_log_probs = true;
  }
  void ExpectScores(int count) {
    ASSERT_EQ(static_cast<int>(sink_.tokens.size()), count);
    ASSERT_EQ(static_cast<int>(sink_.log_probs.size()), count);
    ASSERT_EQ(static_cast<int>(sink_.top_log_probs.size()), count);
    for (int i = 0; i < count; ++i) {
      EXPECT_EQ(sink_.log_probs[i], LogProbAt(i)) << i;
      EXPECT_EQ(sink_.top_log_probs[i], TopAt(i, 3)) << i;
    }
  }
  void ExpectPromptScores() {
    ASSERT_EQ(sink_.prompt_log_probs.size(), start_.prompt.size() - 1);
    for (size_t i = 1; i < start_.prompt.size(); ++i) {
      EXPECT_EQ(sink_.prompt_log_probs[i - 1], PromptLogProbAt(static_cast<int>(i)));
    }
  }
};

TEST_F(RequestFlowScoresTest, TheyComeWithTheirTokens) {
  Begin(Mode::kTree);
  EXPECT_EQ(router_.drafter.last().start.sampling.top_log_probs, 3);
  router_.drafter.last().Send(script_, 0, 5);
  router_.drafter.last().Send(script_, 5, size(), FinishReason::kMaxTokens);
  ExpectWholeScript(0);
  ExpectScores(size());
}

TEST_F(RequestFlowScoresTest, UnlessAskedForTheyAreLeftOut) {
  start_.sampling.log_probs = false;
  start_.sampling.top_log_probs = 0;
  Begin(Mode::kTree);
  router_.drafter.last().Send(script_, 0, size(), FinishReason::kMaxTokens);
  ExpectWholeScript(0);
  EXPECT_TRUE(sink_.log_probs.empty());
  EXPECT_TRUE(sink_.top_log_probs.empty());
}

TEST_F(RequestFlowScoresTest, AStopStringInsideARunCutsThemToo) {
  Begin(Mode::kTree, {"ole r"});
  router_.drafter.last().Send(script_, 0, 15);
  EXPECT_EQ(sink_.answer.finish, FinishReason::kStopString);
  ExpectScores(11);
}

TEST_F(RequestFlowScoresTest, AfterALossAtAnyPointNoneIsMissingOrThereTwice) {
  for (int lost_after = 0; lost_after < size(); ++lost_after) {
    Again();
    Begin(Mode::kTree);
    if (lost_after > 0) {
      router_.drafter.last().Send(script_, 0, lost_after);
    }
    router_.drafter.last().End(absl::UnavailableError("socket closed"));
    // The new path repeats what it may.
    router_.first.last().Send(script_, lost_after / 2, size(), FinishReason::kMaxTokens);
    ExpectWholeScript(1);
    ExpectScores(size());
  }
}

TEST_F(RequestFlowScoresTest, ScoresThatCannotBeAreAFaultOfThePath) {
  const auto broken = [&](auto change) {
    Again();
    Begin(Mode::kTree);
    TokenRun run{.epoch = 1, .first_position = 3, .tokens = {script_[0], script_[1]}};
    run.log_probs = {LogProbAt(0), LogProbAt(1)};
    run.top_log_probs = {TopAt(0, 3), TopAt(1, 3)};
    change(run);
    router_.drafter.last().listener->OnRun(std::move(run));
    EXPECT_TRUE(sink_.tokens.empty());
    EXPECT_TRUE(router_.drafter.last().cancelled);
    router_.first.last().Send(script_, 0, size(), FinishReason::kMaxTokens);
    ExpectWholeScript(1);
    ExpectScores(size());
  };
  broken([](TokenRun& run) { run.log_probs.pop_back(); });
  broken([](TokenRun& run) { run.log_probs.push_back(0); });
  broken([](TokenRun& run) { run.log_probs[1] = NAN; });
  broken([](TokenRun& run) { run.log_probs[0] = -INFINITY; });
  broken([](TokenRun& run) { run.top_log_probs.clear(); });
  broken([](TokenRun& run) { run.top_log_probs[1].pop_back(); });
  broken([](TokenRun& run) { run.top_log_probs[0][2].token = TokenId{-1}; });
  broken([](TokenRun& run) { run.top_log_probs[0][2].log_prob = NAN; });
}

TEST_F(RequestFlowScoresTest, ThePromptsComeBeforeTheAnswer) {
  AskForPrompt("a longer prompt");
  Begin(Mode::kTree);
  EXPECT_TRUE(router_.drafter.last().start.sampling.prompt_log_probs);
  router_.drafter.last().SendPromptScores(1, 6);
  router_.drafter.last().SendPromptScores(6, 15);
  router_.drafter.last().Send(script_, 0, size(), FinishReason::kMaxTokens);
  ExpectWholeScript(0);
  ExpectPromptScores();
}

TEST_F(RequestFlowScoresTest, APromptOfOneTokenOwesNone) {
  AskForPrompt("a");
  Begin(Mode::kTree);
  EXPECT_FALSE(router_.drafter.last().start.sampling.prompt_log_probs);
  router_.drafter.last().Send(script_, 0, size(), FinishReason::kMaxTokens);
  ExpectWholeScript(0);
}

TEST_F(RequestFlowScoresTest, ThePromptsAreAskedForAgainOnlyWhileTheyAreOwed) {
  AskForPrompt("a longer prompt");
  for (int got = 1; got <= 15; ++got) {
    Again();
    Begin(Mode::kTree);
    router_.drafter.last().SendPromptScores(1, got);
    router_.drafter.last().End(absl::UnavailableError("gone"));
    EXPECT_EQ(router_.first.last().start.sampling.prompt_log_probs, got < 15);
    if (got < 15) {
      router_.first.last().SendPromptScores(1, 4);  // the new owner begins anew
      router_.first.last().SendPromptScores(4, 15);
    }
    router_.first.last().Send(script_, 0, size(), FinishReason::kMaxTokens);
    ExpectWholeScript(1);
    ExpectPromptScores();
  }
}

TEST_F(RequestFlowScoresTest, ADrafterThatTakesOverIsNotAskedForThePromptsAgain) {
  AskForPrompt("a longer prompt");
  router_.drafting_pays = false;
  Begin(Mode::kAuto);
  router_.first.last().SendPromptScores(1, 15);
  router_.first.last().Send(script_, 0, 4, FinishReason::kNone, /*verified_nodes=*/0);
  router_.first.last().listener->OnDraftingPays();
  EXPECT_FALSE(router_.drafter.last().start.sampling.prompt_log_probs);
  router_.drafter.last().Send(script_, 4, size(), FinishReason::kMaxTokens);
  ExpectWholeScript(0);
  ExpectPromptScores();
}

TEST_F(RequestFlowScoresTest, PromptScoresThatCannotBeAreAFaultOfThePath) {
  AskForPrompt("a longer prompt");
  const auto broken = [&](PromptScores scores) {
    Again();
    Begin(Mode::kTree);
    router_.drafter.last().SendPromptScores(1, 4);
    router_.drafter.last().listener->OnPromptScores(std::move(scores));
    EXPECT_TRUE(router_.drafter.last().cancelled);
    router_.first.last().SendPromptScores(1, 15);
    router_.first.last().Send(script_, 0, size(), FinishReason::kMaxTokens);
    ExpectWholeScript(1);
    ExpectPromptScores();
  };
  broken({.first_position = 5, .log_probs = {-1}});  // a gap
  broken({.first_position = 0, .log_probs = {-1}});
  broken({.first_position = 4, .log_probs = {}});
  broken({.first_position = 4, .log_probs = {NAN}});
  broken({.first_position = 4, .log_probs = std::vector<float>(12, -1)});
}

TEST_F(RequestFlowScoresTest, TokensBeforeThePromptsScoresAreAFaultOfThePath) {
  AskForPrompt("a longer prompt");
  Begin(Mode::kTree);
  router_.drafter.last().SendPromptScores(1, 14);
  router_.drafter.last().Send(script_, 0, 5);
  EXPECT_TRUE(router_.drafter.last().cancelled);
  EXPECT_TRUE(sink_.tokens.empty());
}

TEST_F(RequestFlowScoresTest, AStalePathsPromptScoresAreDropped) {
  AskForPrompt("a longer prompt");
  Begin(Mode::kTree);
  auto drafter = router_.drafter.calls.back();
  drafter->End(absl::UnavailableError("gone"));
  drafter->SendPromptScores(1, 4);
  EXPECT_TRUE(sink_.prompt_log_probs.empty());
}

}  // namespace
}  // namespace arborist::coordinator
