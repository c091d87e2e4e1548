// The coordinator's edges over real sockets, between a drafter and verifiers that are fakes.
#include "coordinator/service.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/metrics/testing/scrape.h"
#include "coordinator/testing/service_fixture.h"

namespace arborist::coordinator {
namespace {

using testing::CoordinatorServiceTest;
using ::testing::HasSubstr;

TEST_F(CoordinatorServiceTest, PlainAndSpeculativeDecodingStreamTheSameAnswer) {
  StartAll();
  const Result plain = Generate(Request(v1::SPECULATION_MODE_OFF));
  ExpectRight(plain, 30);
  EXPECT_EQ(plain.final.rounds(), 30);
  EXPECT_GT(plain.final.seconds().verify(), 0.02);
  // Measured as messages arrive, so a busy machine counts more of the prompt's time as waiting.
  EXPECT_GT(plain.final.seconds().prefill(), 0);
  EXPECT_GT(plain.final.seconds().queue() + plain.final.seconds().prefill(), 0.001);
  EXPECT_EQ(drafter_.started, 0);
  const Result tree = Generate(Request(v1::SPECULATION_MODE_TREE));
  ExpectRight(tree, 30);
  EXPECT_EQ(tree.final.rounds(), 10);
  EXPECT_EQ(tree.final.verified_nodes(), 160);
  EXPECT_EQ(tree.final.usage().accepted_tokens(), 20);
  EXPECT_EQ(tree.final.fallbacks(), 0);
  EXPECT_EQ(tree.final.system_fingerprint(), "print-" + coordinator_->tokenizer().hash());
  EXPECT_EQ(tree.text, plain.text);
}

TEST_F(CoordinatorServiceTest, ADrafterThatBreaksCostsNoToken) {
  StartAll();
  for (int runs = 0; runs < 4; ++runs) {
    WaitFor([&] { return coordinator_->router().Drafters().usable; });
    drafter_.dies_after = runs;
    const Result result = Generate(Request(v1::SPECULATION_MODE_TREE));
    ExpectRight(result, 30);
    EXPECT_EQ(result.final.fallbacks(), 1);
  }
}

TEST_F(CoordinatorServiceTest, ADrafterThatFallsSilentCostsNoToken) {
  peer_silence_ = DefaultPeerSilence();
  StartAll();
  drafter_.stalls_after = 2;
  const Result result = Generate(Request(v1::SPECULATION_MODE_TREE));
  ExpectRight(result, 30);
  EXPECT_EQ(result.final.fallbacks(), 1);
  WaitFor([&] { return drafter_.cancelled == 1; });
}

TEST_F(CoordinatorServiceTest, WithoutAReadyDrafterDecodingIsPlain) {
  StartAll();
  drafter_.ready = false;
  WaitFor([&] { return !coordinator_->router().Drafters().usable; });
  const Result result = Generate(Request(v1::SPECULATION_MODE_AUTO));
  ExpectRight(result, 30);
  EXPECT_EQ(result.final.fallbacks(), 1);
}

TEST_F(CoordinatorServiceTest, ALostVerifierIsReplacedAndTheLastOneIsUnavailable) {
  StartAll();
  verifier_.dies_after = 7;
  const Result result = Generate(Request(v1::SPECULATION_MODE_OFF));
  ExpectRight(result, 30);
  EXPECT_EQ(other_.opened, 1);
  other_.dies_after = 3;
  WaitFor([&] { return coordinator_->router().ChooseVerifier("print", {}) != nullptr; });
  const Result lost = Generate(Request(v1::SPECULATION_MODE_OFF));
  EXPECT_EQ(lost.status.error_code(), grpc::StatusCode::UNAVAILABLE);
  const absl::Status status = FromGrpcStatus(lost.status);
  EXPECT_EQ(ReasonOf(status), "NO_VERIFIER");
  EXPECT_EQ(OriginOf(status), "coordinator");
  EXPECT_TRUE(RetryDelayOf(status).has_value());
}

TEST_F(CoordinatorServiceTest, ARefusalOfTheVerifierKeepsItsReasonAndOrigin) {
  StartAll();
  verifier_.full = true;
  const absl::Status status = FromGrpcStatus(Generate(Request(v1::SPECULATION_MODE_OFF)).status);
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(ReasonOf(status), reason::kQueueFull);
  EXPECT_EQ(OriginOf(status), "verifier");
  EXPECT_THAT(Scrape(metrics_),
              HasSubstr("arborist_admission_rejected_total{reason=\"verifier_queue_full\"} 1\n"));
}

TEST_F(CoordinatorServiceTest, ACancelledCallStopsItsPathAtOnceAndFreesItsPlace) {
  StartAll(1);
  verifier_.token_ms = 5;
  {
    grpc::ClientContext context;
    const auto reader = stub_->Generate(&context, Request(v1::SPECULATION_MODE_OFF, 400));
    v1::GenerateResponse response;
    ASSERT_TRUE(reader->Read(&response));
    const absl::Status refused = FromGrpcStatus(Generate(Request(v1::SPECULATION_MODE_OFF)).status);
    EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted) << "one place, and it is taken";
    EXPECT_EQ(ReasonOf(refused), reason::kQueueFull);
    EXPECT_TRUE(RetryDelayOf(refused).has_value());
    context.TryCancel();
    EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::CANCELLED);
  }
  WaitFor([&] { return verifier_.cancelled == 1; });
  WaitFor([&] { return coordinator_->admission().running() == 0; });
  EXPECT_THAT(Scrape(metrics_), HasSubstr("arborist_admission_rejected_total{reason=\"queue_full\"} 1\n"));
  EXPECT_THAT(Scrape(metrics_), HasSubstr("arborist_cancelled_requests_total{cause=\"client_gone\"} 1\n"));
  ExpectRight(Generate(Request(v1::SPECULATION_MODE_OFF)), 30);
}

TEST_F(CoordinatorServiceTest, TheRequestsOwnTimeoutEndsIt) {
  StartAll();
  drafter_.run_ms = 20;
  v1::GenerateRequest request = Request(v1::SPECULATION_MODE_TREE, 400);
  request.mutable_timeout()->set_nanos(150'000'000);
  const Result result = Generate(request);
  EXPECT_EQ(result.status.error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  EXPECT_EQ(OriginOf(FromGrpcStatus(result.status)), "coordinator");
  EXPECT_EQ(result.status.error_message(), "timeout=150ms is over, expected the answer's end before");
  EXPECT_THAT(Scrape(metrics_), HasSubstr("arborist_cancelled_requests_total{cause=\"deadline\"} 1\n"));
  WaitFor([&] { return drafter_.cancelled == 1; });
}

TEST_F(CoordinatorServiceTest, AStopStringEndsTheAnswerAndItsPath) {
  StartAll();
  drafter_.run_ms = 2;
  const Result whole = Generate(Request(v1::SPECULATION_MODE_TREE, 400));
  v1::GenerateRequest request = Request(v1::SPECULATION_MODE_TREE, 400);
  request.add_stop(whole.text.substr(20, 4));
  const Result result = Generate(request);
  ASSERT_TRUE(result.status.ok());
  EXPECT_EQ(result.text, whole.text.substr(0, whole.text.find(request.stop(0))));
  EXPECT_EQ(result.final.finish_reason(), v1::FINISH_REASON_STOP_STRING);
  EXPECT_EQ(result.final.stop_string(), request.stop(0));
  WaitFor([&] { return drafter_.cancelled == 1; });
}

TEST_F(CoordinatorServiceTest, ABadFieldIsNamedInTheDetails) {
  StartAll();
  v1::GenerateRequest request = Request(v1::SPECULATION_MODE_OFF);
  request.set_temperature(-3);
  const absl::Status status = FromGrpcStatus(Generate(request).status);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  ASSERT_EQ(FieldViolationsOf(status).size(), 1u);
  EXPECT_EQ(FieldViolationsOf(status)[0].field, "temperature");
  EXPECT_EQ(OriginOf(status), "coordinator");
  EXPECT_EQ(verifier_.opened, 0);
}

TEST_F(CoordinatorServiceTest, TextGoesToIdsAndBack) {
  StartAll();
  const std::string text = "the whole tree <|im_end|> 漢字";
  grpc::ClientContext context, back;
  v1::TokenizeRequest request;
  request.set_text(text);
  v1::TokenizeResponse ids;
  ASSERT_TRUE(stub_->Tokenize(&context, request, &ids).ok());
  v1::DetokenizeRequest reverse;
  *reverse.mutable_token_ids() = ids.token_ids();
  v1::DetokenizeResponse response;
  ASSERT_TRUE(stub_->Detokenize(&back, reverse, &response).ok());
  EXPECT_EQ(response.text(), text);
  grpc::ClientContext bad;
  reverse.add_token_ids(99999);
  const grpc::Status status = stub_->Detokenize(&bad, reverse, &response);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(status.error_message(), HasSubstr("=99999, expected an id of the vocabulary"));
}

TEST_F(CoordinatorServiceTest, CallsOfEveryMethodAreCountedByTheirEnd) {
  StartAll();
  std::string text = Scrape(metrics_);
  for (const char* line : {"arborist_requests_total{code=\"OK\"} 0\n", "arborist_requests_in_flight 0\n",
                           "arborist_verifier_connected 1\n", "arborist_drafter_connected 1\n"}) {
    EXPECT_THAT(text, HasSubstr(line));
  }
  ExpectRight(Generate(Request(v1::SPECULATION_MODE_TREE)), 30);
  v1::GenerateRequest bad = Request(v1::SPECULATION_MODE_TREE);
  bad.set_max_tokens(0);
  EXPECT_EQ(Generate(bad).status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  grpc::ClientContext context;
  v1::GetModelResponse model;
  EXPECT_TRUE(stub_->GetModel(&context, {}, &model).ok());
  text = Scrape(metrics_);
  for (const char* line :
       {"arborist_requests_total{code=\"OK\"} 1\n", "arborist_requests_total{code=\"INVALID_ARGUMENT\"} 1\n",
        "arborist_request_duration_seconds_count{code=\"OK\",method=\"Generate\"} 1\n",
        "arborist_request_duration_seconds_count{code=\"OK\",method=\"GetModel\"} 1\n",
        "arborist_request_duration_seconds_count{code=\"OK\",method=\"Tokenize\"} 0\n",
        "arborist_time_to_first_token_seconds_count 1\n", "arborist_prompt_tokens_total 2\n",
        "arborist_generated_tokens_total 30\n", "arborist_request_queue_duration_seconds_count 1\n"}) {
    EXPECT_THAT(text, HasSubstr(line));
  }
}

TEST_F(CoordinatorServiceTest, TheModelIsDescribed) {
  StartAll();
  grpc::ClientContext context;
  v1::GetModelResponse response;
  ASSERT_TRUE(stub_->GetModel(&context, v1::GetModelRequest(), &response).ok());
  EXPECT_EQ(response.name(), "fake");
  EXPECT_EQ(response.vocabulary_size(), 1024);
  EXPECT_EQ(response.drafter_state(), v1::DRAFTER_STATE_READY);
  EXPECT_EQ(response.proposer(), "ngram");
  EXPECT_TRUE(response.has_chat_template());
}

}  // namespace
}  // namespace arborist::coordinator
