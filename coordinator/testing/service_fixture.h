#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "common/base/utf8.h"
#include "common/metrics/registry.h"
#include "common/rpc/channel.h"
#include "common/rpc/heartbeat.h"
#include "common/rpc/rpc_config.h"
#include "common/rpc/server.h"
#include "coordinator/drafter_client.h"
#include "coordinator/service.h"
#include "coordinator/testing/fake_services.h"
#include "coordinator/verifier_client.h"
#include "grpcpp/generic/generic_stub.h"

namespace arborist::coordinator::testing {

inline std::string TestModel() {
  return std::string(std::getenv("ARBORIST_SOURCE_DIR")) + "/tests/golden/tokenizer";
}

// A coordinator over real sockets, between a drafter and two verifiers that are fakes.
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
    config.rpc.peer_silence = peer_silence_;
    config.drafters = {Address("drafter")};
    config.max_requests = max_requests;
    config.max_samples = max_requests;
    config.max_timeout = absl::Seconds(60);
    config.max_unsent_bytes = max_unsent_bytes_;
    config.reader_patience = reader_patience_;
    std::vector<std::unique_ptr<VerifierClient>> verifiers;
    verifiers.push_back(std::make_unique<GrpcVerifierClient>(Address("verifier"), 1 << 20));
    verifiers.push_back(std::make_unique<GrpcVerifierClient>(Address("other"), 1 << 20));
    verifiers_ = {verifiers[0].get(), verifiers[1].get()};
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
    const auto channel = CreateRpcChannel(Address("coordinator"), {});
    EXPECT_TRUE(channel->WaitForConnected(std::chrono::system_clock::now() + std::chrono::seconds(60)));
    stub_ = v1::CoordinatorService::NewStub(channel);
    WaitFor([&] {
      return coordinator_->router().ChooseVerifier("print", {}) == verifiers_[0] &&
             coordinator_->router().Drafters().usable;
    });
  }

  template <typename Condition>
  static void WaitFor(Condition condition) {
    for (int i = 0; i < 4000 && !condition(); ++i) {
      Pause(5);
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
    std::vector<float> log_probs;
    std::vector<v1::TopLogProbs> top_log_probs;
    std::vector<float> prompt_log_probs;
    std::string echo;
    std::vector<int32_t> echo_ids;
    v1::GenerateFinal final;
    int finals = 0;

    void Take(const v1::GenerateResponse& response) {
      EXPECT_EQ(finals, 0) << "a message after the end";
      if (response.has_final()) {
        final = response.final();
        ++finals;
        return;
      }
      const v1::GenerateChunk& chunk = response.chunk();
      EXPECT_EQ(ValidUtf8Prefix(chunk.text()), chunk.text().size());
      if (chunk.is_prompt()) {
        EXPECT_TRUE(ids.empty() && prompt_log_probs.empty()) << "the prompt after the answer began";
        EXPECT_EQ(chunk.log_probs_size() + chunk.top_log_probs_size() + chunk.prompt_log_probs_size(), 0);
        echo += chunk.text();
        echo_ids.insert(echo_ids.end(), chunk.token_ids().begin(), chunk.token_ids().end());
        return;
      }
      EXPECT_TRUE(chunk.prompt_log_probs_size() == 0 || ids.empty());
      text += chunk.text();
      ids.insert(ids.end(), chunk.token_ids().begin(), chunk.token_ids().end());
      log_probs.insert(log_probs.end(), chunk.log_probs().begin(), chunk.log_probs().end());
      top_log_probs.insert(top_log_probs.end(), chunk.top_log_probs().begin(), chunk.top_log_probs().end());
      prompt_log_probs.insert(prompt_log_probs.end(), chunk.prompt_log_probs().begin(),
                              chunk.prompt_log_probs().end());
    }
  };
  // All answers; every one has the status.
  std::vector<Result> GenerateAll(const v1::GenerateRequest& request) {
    std::vector<Result> results(static_cast<size_t>(std::max(request.n(), 1)));
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(60));
    const auto reader = stub_->Generate(&context, request);
    v1::GenerateResponse response;
    while (reader->Read(&response)) {
      EXPECT_LT(response.sample_index(), results.size());
      results[response.sample_index()].Take(response);
    }
    const grpc::Status status = reader->Finish();
    for (Result& result : results) {
      result.status = status;
    }
    return results;
  }
  // Of a request that is these bytes.
  static absl::Status CallWithBytes(const std::string& method, const std::string& bytes) {
    grpc::GenericStub stub(CreateRpcChannel(Address("coordinator"), {}));
    grpc::ClientContext context;
    context.set_wait_for_ready(true);
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(60));
    grpc::CompletionQueue queue;
    const grpc::Slice slice(bytes);
    const auto call = stub.PrepareUnaryCall(&context, method, grpc::ByteBuffer(&slice, 1), &queue);
    grpc::ByteBuffer answer;
    grpc::Status status;
    call->StartCall();
    call->Finish(&answer, &status, nullptr);
    void* tag = nullptr;
    bool ok = false;
    queue.Next(&tag, &ok);
    return FromGrpcStatus(status);
  }
  Result Generate(const v1::GenerateRequest& request) { return GenerateAll(request)[0]; }

  void ExpectRight(const Result& result, int tokens, uint32_t sample = 0) {
    ASSERT_TRUE(result.status.ok()) << result.status.error_message();
    EXPECT_EQ(result.finals, 1);
    ASSERT_EQ(static_cast<int>(result.ids.size()), tokens);
    std::vector<TokenId> ids;
    for (int i = 0; i < tokens; ++i) {
      EXPECT_EQ(result.ids[i], TokenAt(2 + i, sample));
      ids.push_back(TokenId{result.ids[i]});
    }
    EXPECT_EQ(result.text, coordinator_->tokenizer().Decode(ids, true));
    EXPECT_EQ(result.final.usage().completion_tokens(), tokens);
    EXPECT_EQ(result.final.usage().prompt_tokens(), 2);
  }

  // Of the coordinator that StartAll makes. A busy machine is no fault of a peer: short only where silence is
  // tested.
  std::chrono::milliseconds peer_silence_{5000};
  std::chrono::milliseconds reader_patience_{60000};
  size_t max_unsent_bytes_ = 1 << 20;
  FakeVerifierService verifier_, other_;
  FakeDrafterService drafter_;
  std::unique_ptr<RpcServer> verifier_server_, other_server_, drafter_server_;
  std::vector<const VerifierClient*> verifiers_;  // the first is preferred
  MetricRegistry metrics_;
  std::unique_ptr<Coordinator> coordinator_;
  std::unique_ptr<CoordinatorServiceImpl> service_;
  std::unique_ptr<RpcServer> server_;
  std::unique_ptr<Heartbeat> ticker_;
  std::unique_ptr<v1::CoordinatorService::Stub> stub_;
};

}  // namespace arborist::coordinator::testing
