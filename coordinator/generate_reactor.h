#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <string>

#include "arborist/v1/coordinator.pb.h"
#include "common/rpc/server_outbox.h"
#include "coordinator/coordinator.h"
#include "coordinator/request_codec.h"
#include "grpcpp/grpcpp.h"

namespace arborist::coordinator {

// One Generate call: the request becomes a flow, the flow's answer becomes messages. Deletes itself in
// OnDone.
class GenerateReactor : public grpc::ServerWriteReactor<v1::GenerateResponse>, public AnswerSink {
 public:
  GenerateReactor(Coordinator& coordinator, grpc::CallbackServerContext& context,
                  const v1::GenerateRequest& request);

  void Start();

  void OnWriteDone(bool ok) override { outbox_.OnWriteDone(ok); }
  void OnCancel() override;
  void OnDone() override;

  void OnChunk(std::string text, std::vector<TokenId> tokens) override;
  void OnFinish(const Answer& answer) override;
  void OnError(const PathEnd& error) override;

 private:
  void Begin();
  absl::Status Resolve();
  void Refuse(const absl::Status& status);
  double SecondsSinceArrival() const;
  void Count(size_t tokens);
  void LogEnd(absl::StatusCode code, const std::string& reason);

  Coordinator& coordinator_;
  grpc::CallbackServerContext& context_;
  const v1::GenerateRequest& request_;  // gRPC keeps it until OnDone
  const absl::Time arrived_;
  absl::Time last_tokens_ = absl::InfinitePast();
  int64_t sent_tokens_ = 0;
  std::atomic<bool> counted_{false};  // its end
  bool admitted_ = false;
  VerifierFacts model_;
  uint64_t seed_ = 0;
  int64_t prompt_tokens_ = 0;
  std::string request_id_;
  ServerOutbox<v1::GenerateResponse> outbox_;

  std::mutex mutex_;  // guards what follows
  bool cancelled_ = false;
  std::shared_ptr<RequestFlow> flow_;
};

}  // namespace arborist::coordinator
