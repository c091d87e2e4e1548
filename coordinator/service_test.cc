// The coordinator's edges over real sockets, between a drafter and verifiers that are fakes.
#include "coordinator/service.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>

#include "common/metrics/testing/scrape.h"
#include "common/rpc/channel.h"
#include "common/rpc/heartbeat.h"
#include "common/rpc/server.h"
#include "coordinator/drafter_client.h"
#include "coordinator/testing/fake_services.h"
#include "coordinator/verifier_client.h"

namespace arborist::coordinator {
namespace {

using testing::FakeDrafterService;
using testing::FakeVerifierService;
using ::testing::HasSubstr;
using testing::TokenAt;

std::string TestModel() {
  return std::string(std::getenv("ARBORIST_SOURCE_DIR")) + "/tests/golden/tokenizer";
}

class CoordinatorServiceTest : public ::testing::Test {
 protected:
  ~CoordinatorServiceTest() override {
    if (server_ != nullptr) {
      server_->Drain();
      coordinator_->router().Stop();
    }
  }

  std::unique_ptr<RpcServer> Listen(const std::string& name, grpc::Service& service) {
    grpc::Service* services[] = {&service};
    RpcServerOptions options;
    options.listen = {Address(name)};
    options.drain = std::chrono::milliseconds(100);
    auto server = RpcServer::Start(options, services);
    EXPECT_TRUE(server.ok()) << server.status();
    return *std::move(server);
  }
  static std::string Address(const std::string& name) {
    return "unix:/tmp/arborist-test-" + std::to_string(getpid()) + "-" + name;
  }

  void StartAll(int max_requests = 8) {
    verifier_server_ = Listen("verifier", verifier_);
    other_server_ = Listen("other", other_);
    drafter_server_ = Listen("drafter", drafter_);
    Config config;
    config.rpc.peer_silence = DefaultPeerSilence();
    config.drafters = {Address("drafter")};
    config.max_requests = max_requests;
    config.max_timeout = absl::Seconds(60);
    config.max_unsent_bytes = 1 << 20;
    std::vector<std::unique_ptr<VerifierClient>> verifiers;
    verifiers.push_back(std::make_unique<GrpcVerifierClient>(Address("verifier"), 1 << 20));
    verifiers.push_back(std::make_unique<GrpcVerifierClient>(Address("other"), 1 << 20));
    std::vector<std::unique_ptr<DrafterClient>> drafters;
    drafters.push_back(std::make_unique<GrpcDrafterClient>(Address("drafter"), 1 << 20));
    PeerRouter::Settings settings;
    settings.protocol_version = kProtocolVersion;
    settings.probe_interval = absl::Milliseconds(20);
    GenerationDefaults defaults;
    defaults.eos_ids = {TokenId{1}};
    coordinator_ = std::make_unique<Coordinator>(
        config, *Tokenizer::Load(TestModel()), defaults,
        std::make_unique<PeerRouter>(settings, std::move(verifiers), std::move(drafters)), metrics_);
    service_ = std::make_unique<CoordinatorServiceImpl>(*coordinator_);
    server_ = Listen("coordinator", *service_);
    ticker_ = std::make_unique<Heartbeat>(std::chrono::milliseconds(10), [this] { coordinator_->Tick(); });
    coordinator_->router().Run([](bool) {});
    stub_ = v1::CoordinatorService::NewStub(CreateRpcChannel(Address("coordinator"), {}));
    WaitFor([&] {
      return coordinator_->router().Model().has_value() && coordinator_->router().Drafters().usable;
    });
  }

  template <typename Condition>
  static void WaitFor(Condition condition) {
    for (int i = 0; i < 4000 && !condition(); ++i) {
      testing::Pause(5);
    }
    EXPECT_TRUE(condition());
  }

  static v1::GenerateRequest Request(v1::SpeculationMode mode, int max_tokens = 30) {
    v1::GenerateRequest request;
    request.mutable_token_ids()->add_ids(9);
    request.mutable_token_ids()->add_ids(10);
    request.set_max_tokens(max_tokens);
    request.mutable_speculation()->set_mode(mode);
    return request;
  }

  struct Result {
    grpc::Status status;
    std::string text;
    std::vector<int32_t> ids;
    v1::GenerateFinal final;
    int finals = 0;
  };
  Result Generate(const v1::GenerateRequest& request) {
    Result result;
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(60));
    const auto reader = stub_->Generate(&context, request);
    v1::GenerateResponse response;
    while (reader->Read(&response)) {
      if (response.has_final()) {
        result.final = response.final();
        ++result.finals;
      } else {
        result.text += response.chunk().text();
        result.ids.insert(result.ids.end(), response.chunk().token_ids().begin(),
                          response.chunk().token_ids().end());
      }
    }
    result.status = reader->Finish();
    return result;
  }

  void ExpectRight(const Result& result, int tokens) {
    ASSERT_TRUE(result.status.ok()) << result.status.error_message();
    EXPECT_EQ(result.finals, 1);
    ASSERT_EQ(static_cast<int>(result.ids.size()), tokens);
    std::vector<TokenId> ids;
    for (int i = 0; i < tokens; ++i) {
      EXPECT_EQ(result.ids[i], TokenAt(2 + i));
      ids.push_back(TokenId{result.ids[i]});
    }
    EXPECT_EQ(result.text, coordinator_->tokenizer().Decode(ids, true));
    EXPECT_EQ(result.final.usage().completion_tokens(), tokens);
    EXPECT_EQ(result.final.usage().prompt_tokens(), 2);
  }

  FakeVerifierService verifier_, other_;
  FakeDrafterService drafter_;
  std::unique_ptr<RpcServer> verifier_server_, other_server_, drafter_server_;
  MetricRegistry metrics_;
  std::unique_ptr<Coordinator> coordinator_;
  std::unique_ptr<CoordinatorServiceImpl> service_;
  std::unique_ptr<RpcServer> server_;
  std::unique_ptr<Heartbeat> ticker_;
  std::unique_ptr<v1::CoordinatorService::Stub> stub_;
};

TEST_F(CoordinatorServiceTest, PlainAndSpeculativeDecodingStreamTheSameAnswer) {
  StartAll();
  const Result plain = Generate(Request(v1::SPECULATION_MODE_OFF));
  ExpectRight(plain, 30);
  EXPECT_EQ(plain.final.rounds(), 30);
  EXPECT_GT(plain.final.seconds().verify(), 0.02);
  EXPECT_GT(plain.final.seconds().prefill(), 0.001);
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

TEST_F(CoordinatorServiceTest, ADrafterThatBreaksOrFallsSilentCostsNoToken) {
  StartAll();
  for (int runs = 0; runs < 4; ++runs) {
    WaitFor([&] { return coordinator_->router().Drafters().usable; });
    drafter_.dies_after = runs;
    const Result result = Generate(Request(v1::SPECULATION_MODE_TREE));
    ExpectRight(result, 30);
    EXPECT_EQ(result.final.fallbacks(), 1);
  }
  drafter_.dies_after = -1;
  WaitFor([&] { return coordinator_->router().Drafters().usable; });
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
