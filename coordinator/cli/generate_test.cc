// `arborist generate` and `batch` against a server that says what a test tells it to.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <memory>
#include <mutex>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "arborist/v1/coordinator.grpc.pb.h"
#include "common/json/json.h"
#include "common/rpc/server.h"
#include "common/rpc/status_bridge.h"
#include "coordinator/cli/client.h"
#include "google/protobuf/text_format.h"

namespace arborist::coordinator {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

class ScriptedCoordinator : public v1::CoordinatorService::CallbackService {
 public:
  std::vector<std::string> says;  // GenerateResponses in text format
  absl::Status ends;

  std::vector<v1::GenerateRequest> Asked() const {
    const std::lock_guard lock(mutex_);
    return asked_;
  }

  grpc::ServerWriteReactor<v1::GenerateResponse>* Generate(grpc::CallbackServerContext*,
                                                           const v1::GenerateRequest* request) override {
    {
      const std::lock_guard lock(mutex_);
      asked_.push_back(*request);
    }
    return new Reactor(says, ToGrpcStatus(ends, "coordinator"));
  }

  grpc::ServerUnaryReactor* Detokenize(grpc::CallbackServerContext* context,
                                       const v1::DetokenizeRequest* request,
                                       v1::DetokenizeResponse* response) override {
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    response->set_text(absl::StrCat("<", request->token_ids(0), ">"));
    reactor->Finish(request->token_ids(0) == 13 ? grpc::Status(grpc::StatusCode::INTERNAL, "no 13")
                                                : grpc::Status::OK);
    return reactor;
  }

 private:
  class Reactor : public grpc::ServerWriteReactor<v1::GenerateResponse> {
   public:
    Reactor(const std::vector<std::string>& says, grpc::Status ends) : ends_(std::move(ends)) {
      for (const std::string& text : says) {
        EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &messages_.emplace_back())) << text;
      }
      Next();
    }
    void OnWriteDone(bool ok) override { ok ? Next() : Finish(grpc::Status::CANCELLED); }
    void OnDone() override { delete this; }

   private:
    void Next() {
      if (next_ == messages_.size()) {
        Finish(ends_);
      } else {
        StartWrite(&messages_[next_++]);
      }
    }
    std::vector<v1::GenerateResponse> messages_;
    size_t next_ = 0;
    const grpc::Status ends_;
  };

  mutable std::mutex mutex_;
  std::vector<v1::GenerateRequest> asked_;
};

std::string Chunk(int64_t sample, const std::string& fields) {
  return absl::StrCat("sample_index: ", sample, " chunk { ", fields, " }");
}

std::string Final(int64_t sample, const std::string& fields = "finish_reason: FINISH_REASON_MAX_TOKENS") {
  return absl::StrCat("sample_index: ", sample, " final { ", fields, " }");
}

class GenerateTest : public ::testing::Test {
 protected:
  GenerateTest() {
    grpc::Service* services[] = {&coordinator_};
    auto started = RpcServer::Start({.listen = {"127.0.0.1:0"}}, services);
    EXPECT_TRUE(started.ok()) << started.status();
    server_ = *std::move(started);
  }

  int Run(std::vector<const char*> words) {
    words.insert(words.begin(), "arborist");
    words.insert(words.end(), {"--timeout", "20s", "--address", server_->addresses()[0].c_str()});
    ::testing::internal::CaptureStdout();
    ::testing::internal::CaptureStderr();
    const int status = RunClient(static_cast<int>(words.size()), words.data());
    out_ = ::testing::internal::GetCapturedStdout();
    err_ = ::testing::internal::GetCapturedStderr();
    return status;
  }

  ScriptedCoordinator coordinator_;
  std::unique_ptr<RpcServer> server_;
  std::string out_, err_;
};

TEST_F(GenerateTest, OneAnswerIsItsTextAndALineOfFigures) {
  coordinator_.says = {Chunk(0, "text: 'im' token_ids: 1"), Chunk(0, "text: 'port' token_ids: [2, 3]"),
                       Final(0, "usage { completion_tokens: 3 } rounds: 2 accepted_lengths: [1, 2]")};
  EXPECT_EQ(Run({"generate", "--prompt", "x"}), 0);
  EXPECT_EQ(out_, "import\n");
  EXPECT_THAT(err_, StartsWith("3 tokens, "));
  EXPECT_THAT(err_, HasSubstr("mean accepted length 1.50"));
}

TEST_F(GenerateTest, SeveralAnswersStandOneBelowTheOther) {
  coordinator_.says = {Chunk(1, "text: 'b1'"),   Chunk(0, "text: 'a1'"),
                       Chunk(2, "text: 'c\\n'"), Final(2),
                       Chunk(1, "text: 'b2'"),   Final(1),
                       Chunk(0, "text: 'a2'"),   Final(0)};
  EXPECT_EQ(Run({"generate", "--prompt", "x", "--n", "3"}), 0);
  EXPECT_EQ(out_, "--- answer 0 ---\na1a2\n--- answer 1 ---\nb1b2\n--- answer 2 ---\nc\n");
  EXPECT_THAT(err_, HasSubstr("answer 2: 0 tokens"));
  EXPECT_EQ(coordinator_.Asked()[0].n(), 3);
}

TEST_F(GenerateTest, AnAnswerWithoutTextHasItsHeadingToo) {
  coordinator_.says = {Final(0), Chunk(1, "text: 'b'"), Final(1)};
  EXPECT_EQ(Run({"generate", "--prompt", "x", "--n", "2"}), 0);
  EXPECT_EQ(out_, "--- answer 0 ---\n--- answer 1 ---\nb\n");
}

TEST_F(GenerateTest, LogProbabilitiesStandBelowTheTextWithTheTokens) {
  coordinator_.says = {Chunk(0, "is_prompt: true text: 'p' token_ids: [5, 6]"),
                       Chunk(0, "prompt_log_probs: -1.5"),
                       Chunk(0,
                             "text: 'ab' token_ids: [7, 13] log_probs: [-0.25, -0.5] "
                             "top_log_probs { tokens { token_id: 8 log_prob: -0.125 } "
                             "tokens { token_id: 7 log_prob: -0.25 } } top_log_probs {}"),
                       Final(0)};
  EXPECT_EQ(Run({"generate", "--prompt", "p", "--echo", "--log-probs", "--top-log-probs", "2",
                 "--prompt-log-probs"}),
            0);
  EXPECT_EQ(out_,
            "pab\n"
            "prompt    1    -1.5000  \"<6>\"\n"
            "answer    0    -0.2500  \"<7>\"   of \"<8>\" -0.1250, \"<7>\" -0.2500\n"
            "answer    1    -0.5000  #13\n");  // whose text the server does not give
}

TEST_F(GenerateTest, LogProbabilitiesOfSeveralAnswersStandBelowAllTexts) {
  coordinator_.says = {Chunk(0, "text: 'a' token_ids: 7 log_probs: -0.25"), Final(0),
                       Chunk(1, "text: 'b' token_ids: 8 log_probs: -0.5"), Final(1)};
  EXPECT_EQ(Run({"generate", "--prompt", "p", "--n", "2", "--log-probs"}), 0);
  EXPECT_EQ(out_,
            "--- answer 0 ---\na\n--- answer 1 ---\nb\n"
            "--- log-probabilities of answer 0 ---\nanswer    0    -0.2500  \"<7>\"\n"
            "--- log-probabilities of answer 1 ---\nanswer    0    -0.5000  \"<8>\"\n");
}

TEST_F(GenerateTest, JsonHasEveryFieldOfChunksAndFinal) {
  coordinator_.says = {
      Chunk(0, "is_prompt: true text: 'p' token_ids: [5, 6] prompt_log_probs: -1.5"),
      Chunk(0,
            "text: 'a' token_ids: 7 log_probs: -0.25 top_log_probs { tokens { token_id: 8 log_prob: -0.125 } "
            "}"),
      Chunk(0, "text: 'b' token_ids: 9 log_probs: -0.5 top_log_probs {}"),
      Final(
          0,
          "finish_reason: FINISH_REASON_CONSTRAINT stop_string: 's' seed: 18446744073709551615 "
          "system_fingerprint: 'f' request_id: 'r' rounds: 2 accepted_lengths: [1, 1] verified_nodes: 3 "
          "cut_nodes: 1 fallbacks: 1 usage { prompt_tokens: 2 completion_tokens: 2 cached_tokens: 1 "
          "drafted_tokens: 4 verified_tokens: 3 accepted_tokens: 0 } seconds { queue: 1 prefill: 2 draft: 3 "
          "verify: 4 wire: 5 total: 15 }")};
  EXPECT_EQ(Run({"generate", "--prompt", "p", "--json"}), 0);
  ASSERT_TRUE(ParseJson(out_, "output").ok()) << out_;
  EXPECT_THAT(
      out_,
      StartsWith(
          "{\"text\": \"ab\", \"token_ids\": [7, 9], \"log_probs\": [-0.25, -0.5], "
          "\"top_log_probs\": [[{\"token_id\": 8, \"log_prob\": -0.125}], []], \"prompt_text\": \"p\", "
          "\"prompt_token_ids\": [5, 6], \"prompt_log_probs\": [-1.5], \"finish_reason\": \"constraint\", "
          "\"stop_string\": \"s\", \"seed\": 18446744073709551615, \"system_fingerprint\": \"f\", "
          "\"request_id\": \"r\", \"usage\": {\"prompt_tokens\": 2, \"completion_tokens\": 2, "
          "\"cached_tokens\": 1, \"drafted_tokens\": 4, \"verified_tokens\": 3, \"accepted_tokens\": 0}, "
          "\"rounds\": 2, \"accepted_lengths\": [1, 1], \"mean_accepted_length\": 1, \"verified_nodes\": 3, "
          "\"cut_nodes\": 1, \"fallbacks\": 1, \"seconds\": {\"queue\": 1, \"prefill\": 2, \"draft\": 3, "
          "\"verify\": 4, \"wire\": 5, \"total\": 15}, \"first_chunk_tokens\": 1, \"first_chunk_ns\": "));
}

TEST_F(GenerateTest, JsonOfSeveralAnswersIsOneObject) {
  coordinator_.says = {Chunk(1, "text: 'b'"), Chunk(0, "text: 'a'"), Final(0), Final(1)};
  EXPECT_EQ(Run({"generate", "--prompt", "x", "--n", "2", "--json"}), 0);
  ASSERT_TRUE(ParseJson(out_, "output").ok()) << out_;
  EXPECT_THAT(out_, StartsWith("{\"answers\": [{\"sample_index\": 0, \"text\": \"a\""));
  EXPECT_THAT(out_, HasSubstr("{\"sample_index\": 1, \"text\": \"b\""));
}

TEST_F(GenerateTest, AnErrorNamesFieldValueAndExpectation) {
  coordinator_.ends = FieldError("n", "2000", "an integer in [1, 128]");
  EXPECT_EQ(Run({"generate", "--prompt", "x", "--n", "2000"}), 1);
  EXPECT_EQ(out_, "");
  EXPECT_EQ(err_,
            "error: INVALID_ARGUMENT: n=2000, expected an integer in [1, 128]\n"
            "  field n: n=2000, expected an integer in [1, 128]\n"
            "  from the coordinator (BAD_REQUEST)\n");
}

TEST_F(GenerateTest, JsonHasTheErrorAndWhatCameBeforeIt) {
  coordinator_.says = {Chunk(0, "text: 'a' token_ids: 4"), Chunk(1, "text: 'b'"), Final(1)};
  coordinator_.ends = WithRetryDelay(ErrorWithReason(absl::StatusCode::kResourceExhausted, reason::kQueueFull,
                                                     "requests=4 are running, expected fewer"),
                                     std::chrono::milliseconds(1500));
  EXPECT_EQ(Run({"generate", "--prompt", "x", "--n", "2", "--json"}), 1);
  ASSERT_TRUE(ParseJson(out_, "output").ok()) << out_;
  EXPECT_THAT(out_, StartsWith("{\"error\": {\"code\": \"RESOURCE_EXHAUSTED\", \"origin\": \"coordinator\", "
                               "\"reason\": \"QUEUE_FULL\", \"message\": \"requests=4 are running, expected "
                               "fewer\", \"fields\": [], \"retry_delay_ms\": 1500}, \"answers\": ["));
  EXPECT_THAT(out_, HasSubstr("\"text\": \"a\", \"token_ids\": [4]"));
  EXPECT_THAT(err_, HasSubstr("try again in 1500 ms"));
}

TEST_F(GenerateTest, TextBeforeAnErrorIsNotLost) {
  coordinator_.says = {Chunk(1, "text: 'b'"), Chunk(0, "text: 'a'")};
  coordinator_.ends = absl::DeadlineExceededError("timeout=1s, expected an answer within it");
  EXPECT_EQ(Run({"generate", "--prompt", "x", "--n", "2"}), 1);
  EXPECT_EQ(out_, "--- answer 0 ---\na\n--- answer 1 ---\nb\n");
  EXPECT_THAT(err_, StartsWith("error: DEADLINE_EXCEEDED: timeout=1s"));
}

TEST_F(GenerateTest, MessagesThatDoNotFitTheRequestAreAnError) {
  coordinator_.says = {Chunk(4000000000, "text: 'a'"), Final(0)};
  EXPECT_EQ(Run({"generate", "--prompt", "x"}), 1);
  EXPECT_THAT(
      err_, HasSubstr("INTERNAL: a message with sample_index=4000000000, expected one of an answer below 1"));
  coordinator_.says = {Final(0), Chunk(0, "text: 'late'")};
  EXPECT_EQ(Run({"generate", "--prompt", "x", "--n", "2"}), 1);
  EXPECT_THAT(out_, Not(HasSubstr("late")));
  EXPECT_THAT(err_, HasSubstr("that has not ended"));
  coordinator_.says = {Chunk(0, "text: 'a'"), Final(1)};
  EXPECT_EQ(Run({"generate", "--prompt", "x", "--n", "2"}), 1);
  EXPECT_EQ(out_, "--- answer 0 ---\na\n--- answer 1 ---\n");
  EXPECT_THAT(err_, HasSubstr("after the ends of 1 answers, expected 2"));
  coordinator_.says = {};
  EXPECT_EQ(Run({"generate", "--prompt", "x", "--json"}), 1);
  EXPECT_THAT(out_, HasSubstr("after the ends of 0 answers, expected 1"));
}

TEST_F(GenerateTest, LinesOfABatchTakeEveryFieldAndTheFlagsFillInTheRest) {
  const std::string path = ::testing::TempDir() + "/controlled_requests.txt";
  std::ofstream(path) << "text: 'a' n: 2 logit_bias { token_id: 3 bias: -1 } temperature: 0\n"
                         "text: 'b' regex: '[0-9]+' top_log_probs: 3 stop: 'y'\n";
  coordinator_.says = {Chunk(0, "text: 'x'"), Final(0)};
  EXPECT_EQ(Run({"batch", "--requests", path.c_str(), "--temperature", "0.5", "--seed", "7", "--json-schema",
                 "{}", "--stop", "x"}),
            1);  // of the first line only one of two answers ends
  const std::vector<std::string> lines = absl::StrSplit(out_, '\n', absl::SkipEmpty());
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_THAT(lines[0], StartsWith("{\"error\": {\"code\": \"INTERNAL\""));
  EXPECT_THAT(lines[0], HasSubstr("\"answers\": [{\"sample_index\": 0, \"text\": \"x\""));
  EXPECT_THAT(lines[1], StartsWith("{\"text\": \"x\""));
  for (const v1::GenerateRequest& asked : coordinator_.Asked()) {
    EXPECT_EQ(asked.seed(), 7u);
    EXPECT_EQ(asked.temperature(), asked.text() == "a" ? 0.0f : 0.5f);
    EXPECT_EQ(asked.json_schema(), asked.text() == "a" ? "{}" : "");
    EXPECT_EQ(asked.regex(), asked.text() == "a" ? "" : "[0-9]+");
    EXPECT_EQ(asked.stop_size(), asked.text() == "a" ? 1 : 2);
  }
}

}  // namespace
}  // namespace arborist::coordinator
