#pragma once

#include <unistd.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "common/rpc/protocol.h"
#include "common/rpc/server.h"
#include "common/rpc/status_bridge.h"
#include "drafter/service.h"
#include "drafter/testing/counting_proposer.h"
#include "drafter/testing/fake_verifier_service.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace arborist::drafter::testing {

using ::testing::HasSubstr;

inline bool Eventually(const std::function<bool()>& condition) {
  for (const auto end = Clock::now() + std::chrono::seconds(20); Clock::now() < end;) {
    if (condition()) {
      return true;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return false;
}

struct Answer {
  absl::Status status;
  std::vector<int32_t> tokens;
  std::vector<v1::Tokens> messages;
  std::vector<v1::PromptLogProbs> prompt_log_probs;
  std::set<v1::ProgressState> states;
  int progress = 0;
};

// A drafter over a counting proposer and a fake verifier, on Unix sockets.
class DrafterServiceTest : public ::testing::Test {
 protected:
  DrafterServiceTest() {
    const std::string base =
        (std::filesystem::temp_directory_path() / ("drafter_service_test." + std::to_string(getpid())))
            .string();
    verifier_address_ = "unix:" + base + ".v";
    drafter_address_ = "unix:" + base + ".d";
    StartVerifier();
  }
  ~DrafterServiceTest() override { StopDrafter(); }

  void StartVerifier() {
    grpc::Service* services[] = {&verifier_};
    auto server =
        RpcServer::Start({.listen = {verifier_address_}, .drain = std::chrono::milliseconds(100)}, services);
    ASSERT_TRUE(server.ok()) << server.status();
    verifier_server_ = std::move(*server);
  }
  void StartDrafter(DrafterServiceOptions options = {}) {
    options.proposer_name = "counting";
    if (options.peer_silence == DrafterServiceOptions().peer_silence) {
      options.peer_silence = std::chrono::seconds(20);  // a busy machine is not a silent peer
    }
    service_ = std::make_unique<DrafterServiceImpl>(&proposer_, CreateRpcChannel(verifier_address_, {}),
                                                    options, [this](const VerifierHandshake& verifier) {
                                                      serving_ = verifier.ready;
                                                      std::lock_guard lock(reasons_mutex_);
                                                      reasons_.push_back(verifier.not_ready_reason);
                                                    });
    grpc::Service* services[] = {service_.get()};
    auto server =
        RpcServer::Start({.listen = {drafter_address_}, .drain = std::chrono::milliseconds(100)}, services);
    ASSERT_TRUE(server.ok()) << server.status();
    drafter_server_ = std::move(*server);
    stub_ = v1::DrafterService::NewStub(CreateRpcChannel(drafter_address_, {}));
  }
  void StopDrafter() {
    if (drafter_server_ != nullptr) {
      drafter_server_->Drain();
      service_->Stop();
    }
  }
  void StartReady(const DrafterServiceOptions& options = {}) {
    StartDrafter(options);
    ASSERT_TRUE(Eventually([this] { return serving_.load(); }));
  }

  static v1::SpeculateRequest Request(const std::string& id = "r1", int64_t epoch = 1) {
    v1::SpeculateRequest request;
    v1::Sequence& sequence = *request.mutable_sequence();
    sequence.set_protocol_version(kProtocolVersion);
    sequence.set_request_id(id);
    sequence.set_epoch(epoch);
    sequence.add_prompt(1);
    sequence.add_prompt(2);
    sequence.mutable_sampling()->set_max_tokens(50);
    sequence.set_mode(v1::SPECULATION_MODE_TREE);
    sequence.set_tree_nodes(8);
    sequence.set_fingerprint("f1");
    return request;
  }

  Answer Call(const v1::SpeculateRequest& request,
              const std::function<void(grpc::ClientContext&)>& during = {}) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(30));
    context.set_wait_for_ready(true);  // a busy machine may take longer to connect than one attempt has
    auto reader = stub_->Speculate(&context, request);
    Answer answer;
    v1::SpeculateResponse response;
    while (reader->Read(&response)) {
      if (response.has_tokens()) {
        answer.messages.push_back(response.tokens());
        answer.tokens.insert(answer.tokens.end(), response.tokens().token_ids().begin(),
                             response.tokens().token_ids().end());
      } else if (response.has_prompt_log_probs()) {
        EXPECT_TRUE(answer.messages.empty());  // they come before the first tokens
        answer.prompt_log_probs.push_back(response.prompt_log_probs());
      } else {
        answer.states.insert(response.progress().state());
        ++answer.progress;
      }
      if (during) {
        during(context);
      }
    }
    answer.status = FromGrpcStatus(reader->Finish());
    return answer;
  }
  void ExpectWhole(const Answer& answer, int tokens = 50) {
    EXPECT_TRUE(answer.status.ok()) << answer.status;
    ASSERT_EQ(static_cast<int>(answer.tokens.size()), tokens);
    for (int i = 0; i < tokens; ++i) {
      EXPECT_EQ(answer.tokens[i], 3 + i);
    }
    EXPECT_EQ(answer.messages.back().finish_reason(), v1::FINISH_REASON_MAX_TOKENS);
  }
  void ExpectError(const absl::Status& status, absl::StatusCode code, const std::string& reason,
                   const std::string& origin, const std::string& text) {
    EXPECT_EQ(status.code(), code) << status;
    EXPECT_EQ(ReasonOf(status), reason) << status;
    EXPECT_EQ(OriginOf(status), origin) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(text));
  }

  FakeVerifierService verifier_;
  CountingProposer proposer_;
  std::vector<std::string> reasons() {
    std::lock_guard lock(reasons_mutex_);
    return reasons_;
  }

  std::atomic<bool> serving_{false};
  std::mutex reasons_mutex_;
  std::vector<std::string> reasons_;  // as the service said them
  std::string verifier_address_;
  std::string drafter_address_;
  std::unique_ptr<RpcServer> verifier_server_;
  std::unique_ptr<DrafterServiceImpl> service_;
  std::unique_ptr<RpcServer> drafter_server_;
  std::unique_ptr<v1::DrafterService::Stub> stub_;
};

}  // namespace arborist::drafter::testing
