// What a client may ask for beside the text of one answer, over real sockets between fakes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "common/metrics/testing/scrape.h"
#include "coordinator/testing/service_fixture.h"

namespace arborist::coordinator {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::LogProbAt;
using testing::TokenAt;

class ServiceAnswersTest : public testing::CoordinatorServiceTest {
 protected:
  void ExpectScores(const Result& result, int tokens, int top) {
    ASSERT_EQ(static_cast<int>(result.log_probs.size()), tokens);
    ASSERT_EQ(static_cast<int>(result.top_log_probs.size()), top > 0 ? tokens : 0);
    for (int i = 0; i < tokens; ++i) {
      EXPECT_EQ(result.log_probs[i], LogProbAt(2 + i));
      if (top > 0) {
        ASSERT_EQ(result.top_log_probs[i].tokens_size(), top);
        EXPECT_EQ(result.top_log_probs[i].tokens(0).token_id(), 2 + i);
        EXPECT_EQ(result.top_log_probs[i].tokens(top - 1).log_prob(),
                  LogProbAt(2 + i) - static_cast<float>(top - 1));
      }
    }
  }
};

TEST_F(ServiceAnswersTest, LogProbabilitiesStandBesideTheirTokensOnEveryPath) {
  StartAll();
  for (const auto mode : {v1::SPECULATION_MODE_OFF, v1::SPECULATION_MODE_TREE}) {
    v1::GenerateRequest request = Request(mode);
    ExpectScores(Generate(request), 0, 0);
    request.set_log_probs(true);
    const Result chosen = Generate(request);
    ExpectRight(chosen, 30);
    ExpectScores(chosen, 30, 0);
    request.set_top_log_probs(4);
    const Result lists = Generate(request);
    ExpectRight(lists, 30);
    ExpectScores(lists, 30, 4);
  }
}

TEST_F(ServiceAnswersTest, LogProbabilitiesSurviveALostDrafterAndAStopString) {
  StartAll();
  v1::GenerateRequest request = Request(v1::SPECULATION_MODE_TREE);
  request.set_log_probs(true);
  request.set_top_log_probs(2);
  drafter_.dies_after = 3;
  const Result whole = Generate(request);
  ExpectRight(whole, 30);
  EXPECT_EQ(whole.final.fallbacks(), 1);
  ExpectScores(whole, 30, 2);
  WaitFor([&] { return coordinator_->router().Drafters().usable; });
  drafter_.dies_after = -1;
  request.add_stop(whole.text.substr(10, 3));
  const Result cut = Generate(request);
  EXPECT_EQ(cut.final.finish_reason(), v1::FINISH_REASON_STOP_STRING);
  ExpectScores(cut, static_cast<int>(cut.ids.size()), 2);
}

TEST_F(ServiceAnswersTest, ThePromptsLogProbabilitiesComeFirst) {
  StartAll();
  for (const auto mode : {v1::SPECULATION_MODE_OFF, v1::SPECULATION_MODE_TREE}) {
    v1::GenerateRequest request = Request(mode);
    request.mutable_token_ids()->clear_ids();
    for (int i = 0; i < 9; ++i) {
      request.mutable_token_ids()->add_ids(20 + i);
    }
    request.set_prompt_log_probs(true);
    const Result result = Generate(request);
    ASSERT_TRUE(result.status.ok()) << result.status.error_message();
    ASSERT_EQ(result.prompt_log_probs.size(), 8u);
    for (int i = 1; i < 9; ++i) {
      EXPECT_EQ(result.prompt_log_probs[i - 1], LogProbAt(i));
    }
    EXPECT_EQ(result.ids.size(), 30u);
  }
}

TEST_F(ServiceAnswersTest, AnEchoIsThePromptBeforeTheAnswer) {
  StartAll();
  v1::GenerateRequest request = Request(v1::SPECULATION_MODE_TREE);
  request.set_text("the whole <|im_end|> tree \xE6\xBC\xA2");
  request.set_echo(true);
  const Result result = Generate(request);
  ASSERT_TRUE(result.status.ok()) << result.status.error_message();
  EXPECT_EQ(result.echo, request.text());
  EXPECT_EQ(static_cast<int64_t>(result.echo_ids.size()), result.final.usage().prompt_tokens());
  EXPECT_EQ(result.ids.size(), 30u);
}

TEST_F(ServiceAnswersTest, EveryAnswerOfARequestIsASequenceOfItsOwn) {
  StartAll(/*max_requests=*/20);  // a call's places are free a moment after the client has its end
  for (const auto mode : {v1::SPECULATION_MODE_OFF, v1::SPECULATION_MODE_TREE}) {
    v1::GenerateRequest request = Request(mode);
    request.set_n(5);
    request.set_echo(true);
    request.set_log_probs(true);
    const std::vector<Result> results = GenerateAll(request);
    std::set<std::string> ids;
    for (uint32_t sample = 0; sample < 5; ++sample) {
      ExpectRight(results[sample], 30, sample);
      ExpectScores(results[sample], 30, 0);
      EXPECT_THAT(results[sample].echo_ids, ElementsAre(9, 10));
      EXPECT_EQ(results[sample].final.seed(), results[0].final.seed());
      ids.insert(results[sample].final.request_id());
    }
    EXPECT_EQ(ids.size(), 1u);
    std::set<uint32_t> samples;
    for (const v1::Sequence& sequence :
         mode == v1::SPECULATION_MODE_OFF ? verifier_.seen.all() : drafter_.seen.all()) {
      EXPECT_EQ(sequence.request_id(), *ids.begin());
      samples.insert(sequence.sample_index());
    }
    EXPECT_THAT(samples, ElementsAre(0, 1, 2, 3, 4));
  }
  WaitFor([&] { return coordinator_->admission().running() == 0; });
  const std::string text = Scrape(metrics_);
  EXPECT_THAT(text, HasSubstr("arborist_generated_tokens_total 300\n"));
  EXPECT_THAT(text, HasSubstr("arborist_time_to_first_token_seconds_count 2\n"));
  EXPECT_THAT(text, HasSubstr("arborist_requests_total{code=\"OK\"} 2\n"));
  EXPECT_THAT(text, HasSubstr("arborist_requests_awaiting_first_token 0\n"));
}

TEST_F(ServiceAnswersTest, OnlyTheFirstAnswerAsksForThePromptsLogProbabilities) {
  StartAll();
  v1::GenerateRequest request = Request(v1::SPECULATION_MODE_OFF);
  request.set_n(3);
  request.set_prompt_log_probs(true);
  const std::vector<Result> results = GenerateAll(request);
  EXPECT_THAT(results[0].prompt_log_probs, ElementsAre(LogProbAt(1)));
  EXPECT_TRUE(results[1].prompt_log_probs.empty());
  for (const v1::Sequence& sequence : verifier_.seen.all()) {
    EXPECT_EQ(sequence.sampling().prompt_log_probs(), sequence.sample_index() == 0);
  }
}

TEST_F(ServiceAnswersTest, ALostDrafterCostsNoTokenOfAnyAnswer) {
  StartAll();
  drafter_.dies_after = 4;
  v1::GenerateRequest request = Request(v1::SPECULATION_MODE_TREE);
  request.set_n(4);
  const std::vector<Result> results = GenerateAll(request);
  for (uint32_t sample = 0; sample < 4; ++sample) {
    ExpectRight(results[sample], 30, sample);
    EXPECT_EQ(results[sample].final.fallbacks(), 1);
  }
}

TEST_F(ServiceAnswersTest, AllThatIsToldOfEveryAnswerSurvivesLostPeers) {
  StartAll();
  v1::GenerateRequest request = Request(v1::SPECULATION_MODE_OFF);
  request.set_n(3);
  request.set_log_probs(true);
  request.set_top_log_probs(5);
  request.set_prompt_log_probs(true);
  for (const auto& [tokens, runs] :
       std::vector<std::pair<int, int>>{{0, -1}, {7, -1}, {29, -1}, {-1, 0}, {7, 4}}) {
    WaitFor([&] {
      return coordinator_->router().Drafters().usable &&
             coordinator_->router().ChooseVerifier("print", {}) == verifiers_[0];
    });
    verifier_.dies_after = tokens;
    drafter_.dies_after = runs;
    request.mutable_speculation()->set_mode(runs >= 0 ? v1::SPECULATION_MODE_TREE : v1::SPECULATION_MODE_OFF);
    const std::vector<Result> results = GenerateAll(request);
    int fallbacks = 0;
    for (uint32_t sample = 0; sample < 3; ++sample) {
      ExpectRight(results[sample], 30, sample);
      ExpectScores(results[sample], 30, 5);
      fallbacks += results[sample].final.fallbacks();
    }
    EXPECT_GE(fallbacks, 1) << "an answer that begins later may avoid the lost peer from its start";
    EXPECT_THAT(results[0].prompt_log_probs, ElementsAre(LogProbAt(1)));
  }
}

TEST_F(ServiceAnswersTest, TheErrorOfOneAnswerEndsTheCallAndCancelsTheOthers) {
  StartAll();
  verifier_.token_ms = 5;
  verifier_.refused_sample = 2;
  v1::GenerateRequest request = Request(v1::SPECULATION_MODE_OFF, 400);
  request.set_n(4);
  const absl::Status status = FromGrpcStatus(Generate(request).status);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message(), "regex=(, expected a group that ends") << "as the client calls the field";
  ASSERT_EQ(FieldViolationsOf(status).size(), 1u);
  EXPECT_EQ(FieldViolationsOf(status)[0].field, "regex");
  EXPECT_EQ(OriginOf(status), "verifier");
  WaitFor([&] { return coordinator_->admission().running() == 0; });
  WaitFor([&] { return verifier_.running == 0; });
  EXPECT_THAT(Scrape(metrics_), HasSubstr("arborist_requests_total{code=\"INVALID_ARGUMENT\"} 1\n"));
  EXPECT_THAT(Scrape(metrics_), HasSubstr("arborist_requests_awaiting_first_token 0\n"));
}

TEST_F(ServiceAnswersTest, EveryAnswerCountsAtAdmission) {
  StartAll(4);
  v1::GenerateRequest request = Request(v1::SPECULATION_MODE_OFF, 400);
  request.set_n(5);
  EXPECT_EQ(FromGrpcStatus(Generate(request).status).message(),
            "n=5, expected an integer in [1, 4], or 0 for 1");
  verifier_.token_ms = 5;
  grpc::ClientContext context;
  request.set_n(3);
  const auto reader = stub_->Generate(&context, request);
  v1::GenerateResponse response;
  ASSERT_TRUE(reader->Read(&response));
  EXPECT_EQ(coordinator_->admission().running(), 3);
  v1::GenerateRequest small = Request(v1::SPECULATION_MODE_OFF, 2);
  small.set_n(2);
  const absl::Status refused = FromGrpcStatus(Generate(small).status);
  EXPECT_EQ(ReasonOf(refused), reason::kQueueFull);
  EXPECT_EQ(refused.message(), "max_requests=4 leaves no room for 2 more now, expected fewer at once");
  small.set_n(1);
  ExpectRight(Generate(small), 2);
  context.TryCancel();
  EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::CANCELLED);
  WaitFor([&] { return verifier_.cancelled == 3; });
  WaitFor([&] { return coordinator_->admission().running() == 0; });
}

TEST_F(ServiceAnswersTest, AStopStringEndsOnlyItsOwnAnswer) {
  StartAll();
  v1::GenerateRequest request = Request(v1::SPECULATION_MODE_TREE);
  request.set_n(2);
  const std::vector<Result> whole = GenerateAll(request);
  const std::string stop = whole[1].text.substr(2, 4);
  ASSERT_EQ(whole[0].text.find(stop), std::string::npos);
  request.add_stop(stop);
  const std::vector<Result> cut = GenerateAll(request);
  ExpectRight(cut[0], 30, 0);
  EXPECT_EQ(cut[1].final.finish_reason(), v1::FINISH_REASON_STOP_STRING);
  EXPECT_EQ(cut[1].text, whole[1].text.substr(0, whole[1].text.find(stop)));
}

TEST_F(ServiceAnswersTest, MediaAreRefusedBeforeAnythingIsAskedFor) {
  StartAll();
  v1::GenerateRequest request = Request(v1::SPECULATION_MODE_OFF);
  request.add_media()->set_mime_type("image/jpeg");
  const absl::Status status = FromGrpcStatus(Generate(request).status);
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("media=1 (image/jpeg), expected none: no model served"));
  EXPECT_EQ(verifier_.opened + drafter_.started, 0);
}

TEST_F(ServiceAnswersTest, TheCallsOwnDeadlineIsTheClientsToHear) {
  StartAll();
  verifier_.token_ms = 5;
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::milliseconds(150));
  v1::GenerateRequest request = Request(v1::SPECULATION_MODE_OFF, 400);
  request.set_n(2);
  const auto reader = stub_->Generate(&context, request);
  v1::GenerateResponse response;
  while (reader->Read(&response)) {
  }
  EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  WaitFor([&] { return verifier_.running == 0; });
  WaitFor([&] { return coordinator_->admission().running() == 0; });
}

TEST_F(ServiceAnswersTest, ARequestThatCannotBeReadIsToldSo) {
  StartAll();
  const std::string service = "/arborist.v1.CoordinatorService/";
  const std::string broken_text(
      "\x0a\x03"
      "a\xff\xfe",
      5);  // field 1, not UTF-8
  const std::string cut(
      "\x0a\x7f"
      "ab",
      4);
  for (const char* method : {"Generate", "Tokenize"}) {
    for (const std::string& bytes : {broken_text, cut}) {
      const absl::Status status = CallWithBytes(service + method, bytes);
      EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
      EXPECT_EQ(status.message(),
                "request=unreadable, expected a message of " + service + method + " whose strings are UTF-8");
      EXPECT_EQ(ReasonOf(status), reason::kBadRequest);
      EXPECT_EQ(OriginOf(status), "coordinator");
      ASSERT_EQ(FieldViolationsOf(status).size(), 1u);
      EXPECT_EQ(FieldViolationsOf(status)[0].field, "request");
    }
  }
  EXPECT_EQ(CallWithBytes(service + "Nothing", "").code(), absl::StatusCode::kUnimplemented);
  ExpectRight(Generate(Request(v1::SPECULATION_MODE_TREE)), 30);
}

}  // namespace
}  // namespace arborist::coordinator
