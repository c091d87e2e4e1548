// What a drafter does when something fails, over gRPC.
#include "drafter/testing/service_fixture.h"

namespace arborist::drafter::testing {
namespace {

TEST_F(DrafterServiceTest, ProgressSaysVerifyWhileItWaitsForTheVerifier) {
  StartReady({.peer_silence = std::chrono::milliseconds(600)});
  verifier_.silent_in_round = 2;
  const auto begin = Clock::now();
  const Answer answer = Call(Request());
  ExpectError(answer.status, absl::StatusCode::kUnavailable, "PEER_SILENT", "verifier", "600 ms");
  EXPECT_GE(answer.progress, 3);
  EXPECT_EQ(answer.states.count(v1::PROGRESS_STATE_VERIFY), 1u);
  EXPECT_EQ(answer.tokens.size(), 5u);
  EXPECT_GE(Clock::now() - begin, std::chrono::milliseconds(600));
}

TEST_F(DrafterServiceTest, SlowDraftSaysDraftAndIsNotTakenForSilence) {
  StartReady({.peer_silence = std::chrono::milliseconds(100)});
  proposer_.propose_milliseconds_ = 400;
  v1::SpeculateRequest request = Request();
  request.mutable_sequence()->mutable_sampling()->set_max_tokens(5);
  const Answer answer = Call(request);
  ExpectWhole(answer, 5);
  EXPECT_EQ(answer.states.count(v1::PROGRESS_STATE_DRAFT), 1u);
  EXPECT_GE(answer.messages.front().seconds().draft(), 0.4);
}

TEST_F(DrafterServiceTest, FaultsKeepTheirOrigin) {
  StartReady();
  proposer_.malformed_ = true;
  ExpectError(Call(Request("a")).status, absl::StatusCode::kInternal, "BAD_TREE", "drafter", "tree.score[1]");
  proposer_.malformed_ = false;
  proposer_.fail_ = true;
  ExpectError(Call(Request("b")).status, absl::StatusCode::kInternal, "DRAFTER_FAULT", "drafter", "broke");
  proposer_.fail_ = false;
  verifier_.wrong_round_in = 2;
  const Answer wrong = Call(Request("c"));
  ExpectError(wrong.status, absl::StatusCode::kInternal, "VERIFIER_FAULT", "verifier",
              "expected epoch 1, round 2");
  EXPECT_EQ(wrong.tokens.size(), 5u);
  verifier_.wrong_round_in = 0;
  verifier_.ends_in_round = 3;
  ExpectError(Call(Request("d")).status, absl::StatusCode::kInternal, "VERIFIER_FAULT", "verifier",
              "ended before");
  verifier_.ends_in_round = 0;
  verifier_.failure = WithReason(absl::AbortedError("a higher epoch"), "TAKEN_OVER");
  verifier_.fails_in_round = 2;
  ExpectError(Call(Request("e")).status, absl::StatusCode::kAborted, "TAKEN_OVER", "verifier",
              "higher epoch");
}

TEST_F(DrafterServiceTest, VerifierThatGoesAwayEndsTheSequenceAndTheServing) {
  StartReady();
  proposer_.propose_milliseconds_ = 20;
  int messages = 0;
  const Answer answer = Call(Request(), [&](grpc::ClientContext&) {
    if (++messages == 2) {
      verifier_server_->Drain();
    }
  });
  EXPECT_FALSE(answer.status.ok());
  EXPECT_EQ(OriginOf(answer.status), "verifier") << answer.status;
  EXPECT_TRUE(Eventually([this] { return !serving_.load(); }));
  ExpectError(Call(Request("later")).status, absl::StatusCode::kUnavailable, "VERIFIER_UNREACHABLE",
              "drafter", "unreachable");
  StartVerifier();
  EXPECT_TRUE(Eventually([this] { return serving_.load(); }));
  proposer_.propose_milliseconds_ = 0;
  ExpectWhole(Call(Request("again")));
}

TEST_F(DrafterServiceTest, HigherEpochEndsTheRunningOne) {
  StartReady({.peer_silence = std::chrono::seconds(20)});
  verifier_.silent_in_round = 1;
  Answer older;
  std::thread one([&] { older = Call(Request("same", 1)); });
  ASSERT_TRUE(Eventually([this] { return verifier_.requests().size() == 2; }));
  verifier_.silent_in_round = 0;
  ExpectWhole(Call(Request("same", 2)));
  one.join();
  ExpectError(older.status, absl::StatusCode::kAborted, "TAKEN_OVER", "drafter", "epoch 2 took");
}

TEST_F(DrafterServiceTest, StormOfCancelsLeavesItUsable) {
  StartReady();
  for (int i = 0; i < 60; ++i) {
    const Answer answer =
        Call(Request("storm" + std::to_string(i)), [i, n = 0](grpc::ClientContext& context) mutable {
          if (++n > i % 5) {
            context.TryCancel();
          }
        });
    EXPECT_FALSE(answer.status.ok() && answer.tokens.size() != 50) << answer.status;
  }
  EXPECT_TRUE(Eventually([this] { return Call(Request("after")).status.ok(); }));
}

TEST_F(DrafterServiceTest, StallHookSaysNothingMore) {
  const FaultPoint points[] = {FaultPoint::kBeforeTree, FaultPoint::kAfterTreeSent,
                               FaultPoint::kBeforeTokensForwarded};
  for (int i = 0; i < 6; ++i) {
    const FaultPoint point = points[i / 2];
    StartReady({.peer_silence = std::chrono::seconds(20),
                .tokens_follow_tree = i % 2 == 1,
                .fault = {.point = point, .kind = FaultKind::kStall, .round = 2}});
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::milliseconds(600));
    auto reader = stub_->Speculate(&context, Request());
    v1::SpeculateResponse response;
    int progress = 0;
    int tokens = 0;
    while (reader->Read(&response)) {
      progress += response.has_progress() ? 1 : 0;
      tokens += response.tokens().token_ids_size();
    }
    EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
    EXPECT_EQ(tokens, 5);
    EXPECT_LE(progress, 2);
    StopDrafter();
    drafter_server_.reset();
    serving_ = false;
  }
}

TEST(FaultPointsDeathTest, DieHookEndsTheProcessAtItsPoint) {
  const FaultPlan plan = {.point = FaultPoint::kBeforeTree, .kind = FaultKind::kDie, .round = 2};
  EXPECT_FALSE(ShallStall(plan, FaultPoint::kBeforeTree, 1));
  EXPECT_FALSE(ShallStall(plan, FaultPoint::kAfterTreeSent, 2));
  EXPECT_EXIT(ShallStall(plan, FaultPoint::kBeforeTree, 2), ::testing::ExitedWithCode(86), "");
}

}  // namespace
}  // namespace arborist::drafter::testing
