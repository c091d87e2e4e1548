// A client that does not read what it asked for: what it held is free again, and it is never told that a part
// of an answer were the whole.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/metrics/testing/scrape.h"
#include "coordinator/testing/service_fixture.h"
#include "grpcpp/create_channel.h"
#include "grpcpp/security/credentials.h"
#include "grpcpp/support/channel_arguments.h"

namespace arborist::coordinator {
namespace {

using ::testing::HasSubstr;

class SlowReaderTest : public testing::CoordinatorServiceTest {
 protected:
  static constexpr int kStuck = 400;  // tokens whose lists are more than the client takes unread

  std::unique_ptr<grpc::ClientReader<v1::GenerateResponse>> Ask(int answers, int tokens) {
    v1::GenerateRequest request = Request(v1::SPECULATION_MODE_OFF, tokens);
    request.set_n(answers);
    request.set_log_probs(true);
    request.set_top_log_probs(20);
    request.mutable_timeout()->set_seconds(timeout_seconds_);
    return v1::CoordinatorService::NewStub(Narrow())->Generate(&context_, request);
  }
  // Four answers that are still being made when their client, which reads nothing, is cut off.
  std::unique_ptr<grpc::ClientReader<v1::GenerateResponse>> AskUntilCutOff() {
    verifier_.runs = {kStuck};
    verifier_.token_ms = 20;
    StartAll();
    auto reader = Ask(4, kStuck + 80);
    WaitFor([&] { return verifier_.cancelled == 4; });
    verifier_.runs.clear();
    verifier_.token_ms = 0;
    return reader;
  }
  // Takes 64 KiB of a stream that is not read; channels of ours take more.
  static std::shared_ptr<grpc::Channel> Narrow() {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_HTTP2_BDP_PROBE, 0);
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    return grpc::CreateCustomChannel(Address("coordinator"), grpc::InsecureChannelCredentials(), arguments);
  }
  void ExpectFreed(const std::string& cause) {
    WaitFor([&] { return coordinator_->admission().running() == 0; });
    WaitFor([&] { return verifier_.running == 0; });
    EXPECT_THAT(Scrape(metrics_),
                HasSubstr("arborist_cancelled_requests_total{cause=\"" + cause + "\"} 1\n"));
    ExpectRight(Generate(Request(v1::SPECULATION_MODE_OFF)), 30);
  }

  int timeout_seconds_ = 60;
  grpc::ClientContext context_;
};

TEST_F(SlowReaderTest, AnAnswerWithAHoleNeverEndsWell) {
  max_unsent_bytes_ = 4000;
  verifier_.runs = {kStuck, 1, 40};  // the last one has no room, its end would have
  StartAll();
  const auto reader = Ask(1, kStuck + 41);
  WaitFor([&] { return verifier_.opened == 1 && verifier_.running == 0; });
  v1::GenerateResponse response;
  int tokens = 0;
  while (reader->Read(&response)) {
    EXPECT_FALSE(response.has_final());
    tokens += response.chunk().token_ids_size();
  }
  EXPECT_LT(tokens, kStuck + 41);
  const absl::Status status = FromGrpcStatus(reader->Finish());
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
  EXPECT_EQ(ReasonOf(status), reason::kSlowReader);
  EXPECT_THAT(Scrape(metrics_),
              HasSubstr("arborist_generated_tokens_total " + std::to_string(kStuck + 1) + "\n"));
  verifier_.runs.clear();
  ExpectFreed("slow_reader");
}

TEST_F(SlowReaderTest, AClientThatReadsNothingLosesItsPlacesWhileItsAnswersAreMade) {
  reader_patience_ = std::chrono::milliseconds(300);
  const auto reader = AskUntilCutOff();
  ExpectFreed("slow_reader");
  v1::GenerateResponse response;
  while (reader->Read(&response)) {
  }
  EXPECT_FALSE(reader->Finish().ok());
}

TEST_F(SlowReaderTest, AClientThatReadsNothingLosesItsPlacesAfterItsAnswersAreMade) {
  reader_patience_ = std::chrono::milliseconds(300);
  verifier_.runs = {kStuck};
  StartAll();
  const auto reader = Ask(4, kStuck);
  WaitFor([&] { return verifier_.opened == 4 && verifier_.running == 0; });
  verifier_.runs.clear();
  ExpectFreed("slow_reader");
}

TEST_F(SlowReaderTest, AClientThatReadsNothingLosesItsPlacesAfterTheRequestsTimeout) {
  timeout_seconds_ = 1;
  const auto reader = AskUntilCutOff();
  ExpectFreed("deadline");
}

}  // namespace
}  // namespace arborist::coordinator
