#include "coordinator/request_flow.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "coordinator/testing/flow_fixture.h"

namespace arborist::coordinator {
namespace {

using testing::ByteIds;
using ::testing::ElementsAre;
using testing::FakeRouter;
using ::testing::HasSubstr;
using testing::RecordingSink;
using testing::RequestFlowTest;

TEST_F(RequestFlowTest, ADraftersRunsBecomeTheAnswer) {
  Begin(Mode::kTree);
  ASSERT_EQ(router_.drafter.calls.size(), 1u);
  EXPECT_TRUE(router_.first.calls.empty());
  router_.drafter.last().Send(script_, 0, 5);
  EXPECT_EQ(sink_.text, "the w");
  router_.drafter.last().Send(script_, 5, 6);
  router_.drafter.last().Send(script_, 6, size(), FinishReason::kMaxTokens);
  ExpectWholeScript(0);
  EXPECT_THAT(sink_.answer.accepted_lengths, ElementsAre(5, 1, size() - 6));
  EXPECT_EQ(sink_.answer.rounds, 3);
  EXPECT_EQ(sink_.answer.verified_nodes, 21);
  EXPECT_FALSE(router_.drafter.last().cancelled);
  router_.drafter.last().End(absl::OkStatus());
  EXPECT_EQ(sink_.finished, 1);
}

TEST_F(RequestFlowTest, OffGoesToTheVerifierAndIsNoFallback) {
  Begin(Mode::kOff);
  EXPECT_TRUE(router_.drafter.calls.empty());
  router_.first.last().Send(script_, 0, size(), FinishReason::kMaxTokens);
  ExpectWholeScript(0);
}

TEST_F(RequestFlowTest, WithoutADrafterFromTheStartDecodingIsPlainAndCounted) {
  router_.has_drafter = false;
  Begin(Mode::kTree);
  EXPECT_EQ(router_.first.last().start.mode, Mode::kOff);
  router_.first.last().Send(script_, 0, size(), FinishReason::kMaxTokens);
  ExpectWholeScript(1);
}

TEST_F(RequestFlowTest, ADrafterLostAtAnyPointCostsNoToken) {
  for (int lost_after = 0; lost_after < size(); ++lost_after) {
    router_ = FakeRouter();
    sink_ = RecordingSink();
    Begin(Mode::kTree);
    if (lost_after > 0) {
      router_.drafter.last().Send(script_, 0, lost_after);
    }
    router_.drafter.last().End(absl::UnavailableError("socket closed"));
    ASSERT_EQ(router_.first.calls.size(), 1u);
    const PathStart& resumed = router_.first.last().start;
    EXPECT_EQ(resumed.epoch, 2);
    EXPECT_EQ(resumed.prompt, start_.prompt);
    EXPECT_EQ(resumed.output_so_far, std::vector<TokenId>(script_.begin(), script_.begin() + lost_after));
    router_.first.last().Send(script_, lost_after, size(), FinishReason::kMaxTokens);
    ExpectWholeScript(1);
    EXPECT_THAT(router_.faults, ElementsAre("drafter"));
  }
}

TEST_F(RequestFlowTest, ASilentDrafterIsGivenUpAndItsLateWordsAreDropped) {
  Begin(Mode::kTree);
  auto drafter = router_.drafter.calls.back();
  drafter->Send(script_, 0, 4);
  absl::Time now = absl::Now();
  flow_->Tick(now);
  for (int i = 0; i < 11; ++i) {
    flow_->Tick(now += absl::Milliseconds(25));
  }
  EXPECT_TRUE(router_.first.calls.empty()) << "given up before 300 ms";
  drafter->listener->OnProgress();
  for (int i = 0; i < 11; ++i) {
    flow_->Tick(now += absl::Milliseconds(25));
  }
  EXPECT_TRUE(router_.first.calls.empty()) << "given up in spite of a sign of life";
  flow_->Tick(now += absl::Milliseconds(25));
  ASSERT_EQ(router_.first.calls.size(), 1u);
  EXPECT_TRUE(drafter->cancelled);
  drafter->Send(script_, 4, 9);  // it wakes up
  drafter->End(absl::CancelledError("cancelled"));
  router_.first.last().Send(script_, 4, size(), FinishReason::kMaxTokens);
  ExpectWholeScript(1);
}

TEST_F(RequestFlowTest, SleepOfTheCoordinatorItselfIsNotTheDraftersSilence) {
  Begin(Mode::kTree);
  const absl::Time now = absl::Now();
  flow_->Tick(now);
  flow_->Tick(now + absl::Seconds(20));
  EXPECT_TRUE(router_.first.calls.empty());
}

TEST_F(RequestFlowTest, JoinedStepsOfPlainDecodingAreARoundForEachToken) {
  Begin(Mode::kOff);
  router_.first.last().Send(script_, 0, 3, FinishReason::kNone, /*verified_nodes=*/0);
  router_.first.last().Send(script_, 3, size(), FinishReason::kMaxTokens);
  ExpectWholeScript(0);
  EXPECT_EQ(sink_.answer.rounds, 4);
  EXPECT_THAT(sink_.answer.accepted_lengths, ElementsAre(1, 1, 1, size() - 3));
}

TEST_F(RequestFlowTest, AGapIsAFaultOfThePathAndNeverText) {
  Begin(Mode::kTree);
  router_.drafter.last().Send(script_, 0, 4);
  router_.drafter.last().Send(script_, 6, 9);
  EXPECT_EQ(sink_.tokens.size(), 4u);
  EXPECT_TRUE(router_.drafter.last().cancelled);
  EXPECT_EQ(router_.first.last().start.output_so_far.size(), 4u);
  router_.first.last().Send(script_, 4, size(), FinishReason::kMaxTokens);
  ExpectWholeScript(1);
}

TEST_F(RequestFlowTest, AnEqualRepeatIsDroppedAndADifferingOneIsAFault) {
  Begin(Mode::kTree);
  router_.drafter.last().Send(script_, 0, 6);
  router_.drafter.last().Send(script_, 3, 6);  // nothing new
  router_.drafter.last().Send(script_, 4, 8);  // two new
  EXPECT_EQ(sink_.tokens.size(), 8u);
  std::vector<TokenId> wrong = script_;
  wrong[7] = TokenId{Raw(wrong[7]) + 1};
  router_.drafter.last().Send(wrong, 7, 10);
  EXPECT_EQ(sink_.tokens.size(), 8u);
  router_.first.last().Send(script_, 8, size(), FinishReason::kMaxTokens);
  ExpectWholeScript(1);
  EXPECT_EQ(sink_.answer.rounds, 3);
}

TEST_F(RequestFlowTest, LowerEpochsAreDroppedAndHigherOnesAreAFault) {
  Begin(Mode::kTree);
  router_.drafter.last().End(absl::UnavailableError("gone"));
  TokenRun old{.epoch = 1, .first_position = 3, .tokens = ByteIds("zzz")};
  router_.first.last().listener->OnRun(old);
  EXPECT_TRUE(sink_.tokens.empty());
  EXPECT_FALSE(router_.first.last().cancelled);
  router_.verifiers = 2;
  old.epoch = 9;
  router_.first.last().listener->OnRun(old);
  EXPECT_TRUE(router_.first.last().cancelled);
  router_.second.last().Send(script_, 0, size(), FinishReason::kMaxTokens);
  ExpectWholeScript(2);
}

TEST_F(RequestFlowTest, TokensThatCannotBeAreAFault) {
  const auto broken = [&](TokenRun run) {
    router_ = FakeRouter();
    sink_ = RecordingSink();
    Begin(Mode::kTree);
    run.epoch = 1;
    router_.drafter.last().listener->OnRun(std::move(run));
    EXPECT_TRUE(sink_.tokens.empty());
    EXPECT_TRUE(router_.drafter.last().cancelled);
    router_.first.last().Send(script_, 0, size(), FinishReason::kMaxTokens);
    ExpectWholeScript(1);
  };
  broken({.first_position = 3, .tokens = {TokenId{-1}}});
  broken({.first_position = 3, .tokens = {TokenId{1 << 20}}});
  broken({.first_position = 3, .tokens = {}});
  broken({.first_position = 2, .tokens = ByteIds("c")});
  broken({.first_position = -5, .tokens = ByteIds("c")});
  broken({.first_position = 3, .tokens = std::vector<TokenId>(script_.size() + 1, script_[0])});
}

TEST_F(RequestFlowTest, APathThatEndsWithoutAReasonIsAFault) {
  Begin(Mode::kTree);
  router_.drafter.last().Send(script_, 0, 3);
  router_.drafter.last().End(absl::OkStatus());
  router_.first.last().Send(script_, 3, size(), FinishReason::kMaxTokens);
  ExpectWholeScript(1);
}

TEST_F(RequestFlowTest, APathThatBreaksAfterTheLastTokenHasFinished) {
  Begin(Mode::kTree, {"answer!"});
  router_.drafter.last().Send(script_, 0, size());
  EXPECT_EQ(sink_.finished, 0);
  router_.drafter.last().End(absl::UnavailableError("gone"));
  EXPECT_TRUE(router_.first.calls.empty());
  ExpectWholeScript(0);
}

TEST_F(RequestFlowTest, AnEndThatTheRequestDoesNotBearOutIsAFault) {
  for (const FinishReason reason : {FinishReason::kMaxTokens, FinishReason::kConstraint}) {
    sink_ = testing::RecordingSink();
    Begin(Mode::kTree);
    router_.first.calls.clear();
    router_.drafter.last().Send(script_, 0, 5, reason);
    EXPECT_TRUE(sink_.tokens.empty());
    ASSERT_EQ(router_.first.calls.size(), 1u);
    router_.first.last().Send(script_, 0, size(), FinishReason::kMaxTokens);
    ExpectWholeScript(1);
  }
  sink_ = testing::RecordingSink();
  start_.sampling.stop_ids = {script_[7]};
  start_.sampling.bad_words = {"word"};
  Begin(Mode::kTree);
  router_.drafter.last().Send(script_, 0, 5);
  router_.drafter.last().Send(script_, 0, 4, FinishReason::kConstraint);  // of what goes on already
  router_.first.last().Send(script_, 5, 6, FinishReason::kConstraint);
  EXPECT_EQ(sink_.text, "the wh");
  EXPECT_EQ(sink_.answer.finish, FinishReason::kConstraint);
  EXPECT_EQ(sink_.answer.fallbacks, 1);
}

TEST_F(RequestFlowTest, ALostVerifierIsReplacedByOneOfEqualFingerprint) {
  router_.verifiers = 2;
  Begin(Mode::kOff);
  router_.first.last().Send(script_, 0, 5);
  router_.first.last().End(absl::UnavailableError("socket closed"));
  ASSERT_EQ(router_.second.calls.size(), 1u);
  EXPECT_EQ(router_.second.last().start.epoch, 2);
  router_.second.last().Send(script_, 5, size(), FinishReason::kMaxTokens);
  ExpectWholeScript(1);
  EXPECT_THAT(router_.faults, ElementsAre("verifier-1"));
}

TEST_F(RequestFlowTest, AVerifierThatTakesNothingNewIsAvoidedWhoeverHearsItFirst) {
  router_.verifiers = 2;
  Begin(Mode::kTree);
  const absl::Status refused = absl::UnavailableError("a kernel is wrong");
  router_.drafter.last().End(refused, "verifier", "NOT_SERVING");  // the drafter's may be another verifier
  router_.first.last().End(refused, "verifier", "NOT_SERVING");
  ASSERT_EQ(router_.second.calls.size(), 1u);
  router_.second.last().Send(script_, 0, size(), FinishReason::kMaxTokens);
  ExpectWholeScript(2);
}

TEST_F(RequestFlowTest, TheLastVerifierLostIsUnavailable) {
  Begin(Mode::kTree);
  router_.drafter.last().Send(script_, 0, 5);
  router_.drafter.last().End(absl::UnavailableError("verifier gone"), "verifier", "LOADING");
  router_.first.last().End(absl::UnavailableError("connection refused"));
  EXPECT_EQ(sink_.failed, 1);
  EXPECT_EQ(sink_.error.status.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(sink_.error.reason, "NO_VERIFIER");
  EXPECT_THAT(
      std::string(sink_.error.status.message()),
      HasSubstr("the verifier failed (verifier gone; then connection refused) and beside 1 there is none"));
}

TEST_F(RequestFlowTest, ASilentLastVerifierIsAskedAgainAndAtLastGivenUp) {
  Begin(Mode::kOff);
  router_.first.last().Send(script_, 0, 5);
  absl::Time now = absl::Now();
  const auto wait = [&] {
    for (int i = 0; i < 13; ++i) {
      flow_->Tick(now += absl::Milliseconds(25));
    }
  };
  wait();
  ASSERT_EQ(router_.first.calls.size(), 2u);
  EXPECT_TRUE(router_.first.calls[0]->cancelled);
  EXPECT_TRUE(router_.faults.empty());
  router_.first.last().Send(script_, 5, 9);
  for (int i = 0; i < 20 && sink_.failed == 0; ++i) {
    wait();
  }
  EXPECT_EQ(sink_.error.reason, "NO_VERIFIER");
  EXPECT_EQ(router_.first.calls.size(), 8u);
  EXPECT_EQ(sink_.tokens.size(), 9u);
}

TEST_F(RequestFlowTest, ARequestThatTheVerifierRefusesGoesToTheClient) {
  Begin(Mode::kTree);
  router_.drafter.last().End(absl::InvalidArgumentError("prompt is too long"), "verifier", "BAD_REQUEST");
  EXPECT_EQ(sink_.failed, 1);
  EXPECT_EQ(sink_.error.status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(router_.first.calls.empty());
}

TEST_F(RequestFlowTest, ABadTreeIsTheDraftersFaultWhoeverReportsIt) {
  Begin(Mode::kTree);
  router_.drafter.last().End(absl::InvalidArgumentError("tree"), "verifier", "BAD_TREE");
  router_.first.last().Send(script_, 0, size(), FinishReason::kMaxTokens);
  ExpectWholeScript(1);
}

TEST_F(RequestFlowTest, AFullDrafterIsLeftForPlainDecodingAndIsNoFault) {
  Begin(Mode::kTree);
  router_.drafter.last().End(absl::ResourceExhaustedError("64 sequences"), "drafter", "QUEUE_FULL");
  router_.first.last().Send(script_, 0, size(), FinishReason::kMaxTokens);
  ExpectWholeScript(1);
  EXPECT_TRUE(router_.faults.empty());
}

TEST_F(RequestFlowTest, AFullVerifierIsToldToTheClient) {
  Begin(Mode::kOff);
  router_.first.last().End(absl::ResourceExhaustedError("queue is full"), "verifier", "QUEUE_FULL");
  EXPECT_EQ(sink_.error.status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(router_.faults.empty());
}

TEST_F(RequestFlowTest, AStreamThatWasTakenOverGoesOnThereWithAHigherEpoch) {
  Begin(Mode::kOff);
  router_.first.last().Send(script_, 0, 5);
  router_.first.last().End(absl::ResourceExhaustedError("outbox is full"), "verifier", "SLOW_READER");
  ASSERT_EQ(router_.first.calls.size(), 2u);
  router_.first.last().Send(script_, 5, size(), FinishReason::kMaxTokens);
  ExpectWholeScript(1);
}

TEST_F(RequestFlowTest, AttemptsAreBounded) {
  Begin(Mode::kOff);
  while (sink_.failed == 0 && router_.first.calls.size() < 100) {
    router_.first.last().End(absl::AbortedError("taken over"), "verifier", "TAKEN_OVER");
  }
  EXPECT_EQ(sink_.failed, 1);
  EXPECT_EQ(router_.first.calls.size(), 8u);
}

TEST_F(RequestFlowTest, TheContextLimitIsToldApartFromTheClientsOwnLimit) {
  settings_.context_length = 3 + size();
  start_.sampling.max_tokens = size() + 50;
  Begin(Mode::kTree);
  EXPECT_EQ(router_.drafter.last().start.sampling.max_tokens, size());
  router_.drafter.last().Send(script_, 0, size(), FinishReason::kMaxTokens);
  EXPECT_EQ(sink_.answer.finish, FinishReason::kContextLimit);
}

TEST_F(RequestFlowTest, CancelStopsThePathAtOnceAndNothingFollows) {
  Begin(Mode::kTree);
  router_.drafter.last().Send(script_, 0, 4);
  flow_->Cancel(absl::CancelledError("client is gone"));
  EXPECT_TRUE(router_.drafter.last().cancelled);
  router_.drafter.last().Send(script_, 4, 9);
  router_.drafter.last().End(absl::CancelledError("cancelled"));
  flow_->Cancel(absl::CancelledError("again"));
  EXPECT_EQ(sink_.failed, 1);
  EXPECT_EQ(sink_.tokens.size(), 4u);
  EXPECT_TRUE(router_.first.calls.empty());
}

TEST_F(RequestFlowTest, TheDeadlineEndsTheRequestAndIsPassedOn) {
  const absl::Time now = absl::Now();
  start_.deadline = now + absl::Seconds(1);
  Begin(Mode::kTree);
  EXPECT_EQ(router_.drafter.last().start.deadline, start_.deadline);
  flow_->Tick(now + absl::Milliseconds(999));
  EXPECT_EQ(sink_.failed, 0);
  flow_->Tick(now + absl::Seconds(1));
  EXPECT_EQ(sink_.error.status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_TRUE(router_.drafter.last().cancelled);
}

TEST_F(RequestFlowTest, WithoutAVerifierTheRequestIsUnavailable) {
  router_.verifiers = 0;
  Begin(Mode::kTree);
  EXPECT_EQ(sink_.error.reason, "NO_VERIFIER");
  EXPECT_EQ(sink_.error.status.code(), absl::StatusCode::kUnavailable);
}

}  // namespace
}  // namespace arborist::coordinator
