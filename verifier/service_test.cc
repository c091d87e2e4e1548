#include "verifier/testing/service_fixture.h"

namespace arborist::verifier {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using namespace testing;  // NOLINT: the fixture's vocabulary

TEST_F(VerifierServiceTest, InfoSaysWhatThisVerifierIs) {
  grpc::ClientContext context;
  v1::VerifierServiceGetInfoResponse info;
  ASSERT_TRUE(stub_->GetInfo(&context, {}, &info).ok());
  EXPECT_EQ(info.protocol_version(), kProtocolVersion);
  EXPECT_EQ(info.fingerprint(), "f1");
  EXPECT_EQ(info.projection_hash(), "p1");
  EXPECT_EQ(info.vocabulary_size(), 1000);
  EXPECT_EQ(info.context_length(), 64);
  EXPECT_EQ(info.max_tree_nodes(), 31);
  EXPECT_EQ(info.free_pages(), 7);
}

TEST_F(VerifierServiceTest, TreesAndDecodesAreAnsweredInOrderAndStopEndsWithOk) {
  Stream stream(*stub_);
  stream.Send(OpenRequest());
  ASSERT_TRUE(stream.AwaitReady());
  v1::Committed committed;
  stream.Send(TreeRequest(1, 6));
  ASSERT_TRUE(stream.AwaitCommitted(committed));
  EXPECT_EQ(committed.round(), 1);
  EXPECT_EQ(committed.first_position(), 2);
  EXPECT_THAT(committed.token_ids(), ElementsAre(7));
  EXPECT_EQ(committed.verified_nodes(), 1);
  EXPECT_TRUE(committed.last());
  stream.Send(DecodeRequest(2, 3));
  std::vector<int32_t> tokens;
  do {
    ASSERT_TRUE(stream.AwaitCommitted(committed));
    EXPECT_EQ(committed.round(), 2);
    tokens.insert(tokens.end(), committed.token_ids().begin(), committed.token_ids().end());
  } while (!committed.last());
  EXPECT_THAT(tokens, ElementsAre(8, 9, 10));
  v1::VerifyRequest stop;
  stop.mutable_stop();
  stream.Send(stop);
  EXPECT_TRUE(stream.End().ok());
  EXPECT_EQ(fake_.open_sequences(), 0);
}

// More than the outbox keeps of results: nobody takes a reader for a slow one because the prompt is long.
TEST_F(VerifierServiceTest, LogProbabilitiesOfAPromptComeInOrderBeforeWaitingHoweverMany) {
  constexpr int kMessages = 300;
  constexpr int kValues = 1000;
  fake_.set_ready_on_open(false);
  Stream stream(*stub_);
  stream.Send(OpenRequest());
  ASSERT_TRUE(fake_.WaitForCall("open"));
  SequenceSink* sink = fake_.last_sink();
  fake_.Post([sink] {
    for (int i = 0; i < kMessages; ++i) {
      std::vector<float> values;
      for (int j = 0; j < kValues; ++j) {
        values.push_back(-static_cast<float>(i * kValues + j));
      }
      sink->OnPromptLogProbs(1 + i * kValues, std::move(values));
      sink->OnProgress(ProgressState::kPrefill, i);
    }
    sink->OnProgress(ProgressState::kWaiting, kMessages);
    sink->OnReady(8);
  });
  std::vector<float> all;
  v1::VerifyResponse response;
  ASSERT_TRUE(stream.ReadUntil(response, [&](const v1::VerifyResponse& r) {
    if (r.has_prompt_log_probs()) {
      EXPECT_EQ(r.prompt_log_probs().first_position(), static_cast<int32_t>(all.size()) + 1);
      EXPECT_LE(r.prompt_log_probs().log_probs_size(), 4096);
      const auto& values = r.prompt_log_probs().log_probs();
      all.insert(all.end(), values.begin(), values.end());
    }
    return r.progress().state() == v1::PROGRESS_STATE_WAITING;
  }));
  ASSERT_EQ(all.size(), static_cast<size_t>(kMessages * kValues));
  for (size_t i = 0; i < all.size(); ++i) {
    ASSERT_EQ(all[i], -static_cast<float>(i));
  }
}

TEST_F(VerifierServiceTest, TokensOfADecodeUntilDraftingPaysLeaveTogether) {
  Stream stream(*stub_);
  stream.Send(OpenRequest());
  v1::VerifyResponse ready;
  ASSERT_TRUE(stream.ReadUntil(
      ready, [](const v1::VerifyResponse& r) { return r.progress().state() == v1::PROGRESS_STATE_WAITING; }));
  EXPECT_TRUE(ready.progress().has_next_budget());
  EXPECT_EQ(ready.progress().next_budget(), 8);
  v1::VerifyRequest decode = DecodeRequest(1, 100);
  decode.mutable_decode()->set_until_drafting_pays(true);
  stream.Send(decode);
  int messages = 0;
  int32_t next = 2;
  v1::Committed committed;
  do {
    ASSERT_TRUE(stream.AwaitCommitted(committed));
    ++messages;
    EXPECT_EQ(committed.first_position(), next);
    EXPECT_LE(committed.token_ids_size(), 64);
    next += committed.token_ids_size();
  } while (!committed.last());
  EXPECT_EQ(next, 102);
  EXPECT_LT(messages, 50);
}

// The answer overtakes the completion of the client's and the server's writes here; a second StartWrite
// before that completion aborts the process.
TEST_F(VerifierServiceTest, ManyFastRoundsNeverStartAWriteBeforeThePreviousOneCompleted) {
  Stream stream(*stub_);
  v1::VerifyRequest open = OpenRequest();
  stream.Send(open);
  ASSERT_TRUE(stream.AwaitReady());
  for (int round = 1; round <= 2000; ++round) {
    stream.Send(TreeRequest(round, (5 + round) % 1000));
    v1::Committed committed;
    ASSERT_TRUE(stream.AwaitCommitted(committed)) << stream.End();
    ASSERT_EQ(committed.round(), round);
  }
}

TEST_F(VerifierServiceTest, HalfCloseFinishesTheRoundInFlight) {
  fake_.HoldSteps(true);
  Stream stream(*stub_);
  stream.Send(OpenRequest());
  ASSERT_TRUE(stream.AwaitReady());
  stream.Send(TreeRequest(1, 6));
  stream.HalfClose();
  ASSERT_TRUE(fake_.WaitForCall("finish"));
  fake_.HoldSteps(false);
  v1::Committed committed;
  ASSERT_TRUE(stream.AwaitCommitted(committed));
  EXPECT_THAT(committed.token_ids(), ElementsAre(7));
  EXPECT_TRUE(stream.End().ok());
  EXPECT_EQ(fake_.open_sequences(), 0);
}

TEST_F(VerifierServiceTest, CancelFreesTheSequence) {
  fake_.HoldSteps(true);
  Stream stream(*stub_);
  stream.Send(OpenRequest());
  ASSERT_TRUE(stream.AwaitReady());
  stream.Send(TreeRequest(1, 6));
  ASSERT_TRUE(fake_.WaitForCall("tree"));
  stream.Cancel();
  EXPECT_TRUE(Eventually([this] { return fake_.open_sequences() == 0; }));
  EXPECT_EQ(stream.End().code(), absl::StatusCode::kCancelled);
}

TEST_F(VerifierServiceTest, ADeadlineFreesTheSequenceWhateverItWaitsFor) {
  fake_.HoldSteps(true);
  Stream in_a_step(*stub_, std::chrono::milliseconds(1000));
  in_a_step.Send(OpenRequest("step"));
  ASSERT_TRUE(in_a_step.AwaitReady());
  in_a_step.Send(TreeRequest(1, 6));
  Stream for_its_owner(*stub_, std::chrono::milliseconds(1000));
  for_its_owner.Send(OpenRequest("owner"));
  fake_.set_ready_on_open(false);
  Stream for_admission(*stub_, std::chrono::milliseconds(1000));
  for_admission.Send(OpenRequest("queued"));
  for (Stream* stream : {&in_a_step, &for_its_owner, &for_admission}) {
    EXPECT_EQ(stream->End().code(), absl::StatusCode::kDeadlineExceeded);
  }
  EXPECT_TRUE(Eventually([this] { return fake_.open_sequences() == 0; }));
}

TEST_F(VerifierServiceTest, StormOfCancelsLeavesNothingBehind) {
  for (int i = 0; i < 100; ++i) {
    Stream stream(*stub_);
    stream.Send(OpenRequest("storm" + std::to_string(i)));
    if (i % 3 != 0) {
      ASSERT_TRUE(stream.AwaitReady());
      stream.Send(DecodeRequest(1, 1 + i % 7));
    }
    stream.Cancel();
  }
  EXPECT_TRUE(Eventually([this] { return fake_.open_sequences() == 0; }));
}

TEST_F(VerifierServiceTest, SecondTreeInFlightEndsTheStream) {
  fake_.HoldSteps(true);
  Stream stream(*stub_);
  stream.Send(OpenRequest());
  ASSERT_TRUE(stream.AwaitReady());
  stream.Send(TreeRequest(1, 6));
  stream.Send(TreeRequest(2, 6));
  ExpectError(stream.End(), absl::StatusCode::kFailedPrecondition, "ROUND_IN_FLIGHT", "in flight");
  EXPECT_EQ(fake_.open_sequences(), 0);
}

TEST_F(VerifierServiceTest, HigherEpochEndsTheOlderStreamAndALowerOneIsRefused) {
  Stream older(*stub_);
  older.Send(OpenRequest("same", 2));
  ASSERT_TRUE(older.AwaitReady());
  Stream newer(*stub_);
  newer.Send(OpenRequest("same", 3));
  ASSERT_TRUE(newer.AwaitReady());
  ExpectError(older.End(), absl::StatusCode::kAborted, "TAKEN_OVER", "higher epoch");
  Stream zombie(*stub_);
  zombie.Send(OpenRequest("same", 1));
  ExpectError(zombie.End(), absl::StatusCode::kFailedPrecondition, "STALE_EPOCH", "epoch");
  EXPECT_EQ(fake_.open_sequences(), 1);
}

}  // namespace
}  // namespace arborist::verifier
