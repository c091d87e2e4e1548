#pragma once

#include <unistd.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "arborist/v1/verifier.grpc.pb.h"
#include "common/rpc/protocol.h"
#include "common/rpc/server.h"
#include "common/rpc/status_bridge.h"
#include "common/rpc/tree_codec.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "verifier/service.h"
#include "verifier/testing/fake_verifier.h"

// What the tests of the Verify service share: a served fake verifier and a blocking client of one stream.
namespace arborist::verifier::testing {

using ::testing::HasSubstr;
using Clock = std::chrono::steady_clock;

class VerifierServiceTest : public ::testing::Test {
 protected:
  explicit VerifierServiceTest(bool with_tokenizer = true)
      : service_(std::chrono::milliseconds(1000), [this](const absl::Status& health) {
          const std::lock_guard lock(health_mutex_);
          health_ = health;
          serving_ = health.ok();
        }) {
    service_.Serve(&fake_,
                   {.fingerprint = "f1",
                    .projection_hash = "p1",
                    .model_name = "fake",
                    .vocabulary_size = FakeVerifier::kVocabulary,
                    .hidden_size = FakeVerifier::kHidden,
                    .context_length = 64,
                    .max_tree_nodes = 31,
                    .max_sequences = 4},
                   with_tokenizer ? &constraints_ : nullptr);
    socket_ = std::filesystem::temp_directory_path() / ("verifier_service_test." + std::to_string(getpid()));
    grpc::Service* services[] = {&service_};
    auto server = RpcServer::Start(
        {.listen = {"unix:" + socket_.string()}, .drain = std::chrono::milliseconds(200)}, services);
    EXPECT_TRUE(server.ok()) << server.status();
    server_ = std::move(*server);
    channel_ = CreateRpcChannel("unix:" + socket_.string(), {});
    stub_ = v1::VerifierService::NewStub(channel_);
  }
  ~VerifierServiceTest() override {
    server_->Drain();
    service_.Stop();
  }

  std::string WhyNotServing() {
    const std::lock_guard lock(health_mutex_);
    return std::string(health_.message());
  }

  static v1::VerifyRequest OpenRequest(const std::string& id = "r1", int64_t epoch = 1) {
    v1::VerifyRequest request;
    v1::Sequence& sequence = *request.mutable_open()->mutable_sequence();
    sequence.set_protocol_version(kProtocolVersion);
    sequence.set_request_id(id);
    sequence.set_epoch(epoch);
    sequence.add_prompt(5);
    sequence.add_prompt(6);
    sequence.mutable_sampling()->set_max_tokens(30);
    sequence.set_tree_nodes(8);
    sequence.set_fingerprint("f1");
    return request;
  }
  static v1::VerifyRequest TreeRequest(int64_t round, int32_t root) {
    v1::VerifyRequest request;
    request.mutable_tree()->set_round(round);
    EncodeTree({.token = {TokenId{root}, TokenId{(root + 1) % 1000}}, .parent = {-1, 0}, .score = {0, -1}},
               *request.mutable_tree()->mutable_tree());
    return request;
  }
  static v1::VerifyRequest DecodeRequest(int64_t round, int tokens) {
    v1::VerifyRequest request;
    request.mutable_decode()->set_round(round);
    request.mutable_decode()->set_max_tokens(tokens);
    return request;
  }

  // Token v below 256 is byte v, the others have no text.
  static std::shared_ptr<const TokenVocabulary> Bytes() {
    std::vector<std::string> bytes(FakeVerifier::kVocabulary);
    for (int byte = 0; byte < 256; ++byte) {
      bytes[byte] = std::string(1, static_cast<char>(byte));
    }
    return std::make_shared<const TokenVocabulary>(std::move(bytes));
  }

  FakeVerifier fake_;
  ConstraintCompiler constraints_{Bytes()};
  std::atomic<bool> serving_{false};
  std::mutex health_mutex_;
  absl::Status health_;
  VerifierServiceImpl service_;
  std::filesystem::path socket_;
  std::unique_ptr<RpcServer> server_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<v1::VerifierService::Stub> stub_;
};

// A blocking client of one Verify stream.
class Stream {
 public:
  explicit Stream(v1::VerifierService::Stub& stub,
                  std::chrono::milliseconds deadline = std::chrono::seconds(30)) {
    context_.set_deadline(std::chrono::system_clock::now() + deadline);
    stream_ = stub.Verify(&context_);
  }
  ~Stream() {
    if (!finished_) {
      context_.TryCancel();
      (void)End();
    }
  }
  void Send(const v1::VerifyRequest& request) { stream_->Write(request); }
  void HalfClose() { stream_->WritesDone(); }
  void Cancel() { context_.TryCancel(); }
  bool Read(v1::VerifyResponse& response) { return stream_->Read(&response); }
  // Reads until `wanted` says true; false at the end of the stream.
  bool ReadUntil(v1::VerifyResponse& response, const std::function<bool(const v1::VerifyResponse&)>& wanted) {
    while (Read(response)) {
      if (wanted(response)) {
        return true;
      }
    }
    return false;
  }
  bool AwaitReady() {
    v1::VerifyResponse response;
    return ReadUntil(response, [](const v1::VerifyResponse& r) {
      return r.progress().state() == v1::PROGRESS_STATE_WAITING;
    });
  }
  bool AwaitCommitted(v1::Committed& committed) {
    v1::VerifyResponse response;
    const bool found = ReadUntil(response, [](const v1::VerifyResponse& r) { return r.has_committed(); });
    committed = response.committed();
    return found;
  }
  absl::Status End() {
    v1::VerifyResponse response;
    while (Read(response)) {
    }
    finished_ = true;
    return FromGrpcStatus(stream_->Finish());
  }

 private:
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReaderWriter<v1::VerifyRequest, v1::VerifyResponse>> stream_;
  bool finished_ = false;
};

inline bool Eventually(const std::function<bool()>& condition) {
  for (const auto end = Clock::now() + std::chrono::seconds(20); Clock::now() < end;) {
    if (condition()) {
      return true;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return false;
}

inline void ExpectError(const absl::Status& status, absl::StatusCode code, const std::string& reason,
                        const std::string& text) {
  EXPECT_EQ(status.code(), code) << status;
  EXPECT_EQ(ReasonOf(status), reason) << status;
  EXPECT_EQ(OriginOf(status), "verifier") << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr(text));
}

}  // namespace arborist::verifier::testing
