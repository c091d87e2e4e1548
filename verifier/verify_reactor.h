#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <optional>

#include "absl/status/status.h"
#include "arborist/v1/verifier.grpc.pb.h"
#include "common/rpc/heartbeat.h"
#include "common/rpc/server_outbox.h"
#include "grpcpp/support/server_callback.h"
#include "verifier/constraint_compiler.h"
#include "verifier/refusal.h"
#include "verifier/verifier.h"
#include "verifier/verify_codec.h"

namespace arborist::verifier {

// One Verify stream: the proto side of one sequence. Enforces the stream rules that need no model: Open first
// and once, rounds counted, a slow reader ended. Deletes itself when both gRPC and the verifier are done with
// it.
//
// The verifier is never called under mutex_: it may call back from its step thread.
class VerifyReactor final : public grpc::ServerBidiReactor<v1::VerifyRequest, v1::VerifyResponse>,
                            public SequenceSink,
                            public HeartbeatListener {
 public:
  // All outlive the reactor. No compiler: constraints are refused.
  VerifyReactor(Verifier* verifier, const VerifierInfo* info, ConstraintCompiler* constraints,
                const Refusal* refusal, Heartbeat* heartbeat, grpc::CallbackServerContext* context);

  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;

  void OnProgress(ProgressState state, int prompt_tokens_done) override;
  void OnPromptLogProbs(int32_t first_position, std::vector<float> log_probs) override;
  void OnReady(int next_budget) override;
  void OnFeatures(int32_t first_position, int32_t rows, std::vector<uint16_t> features) override;
  void OnCommitted(Committed committed) override;
  void OnClosed(absl::Status status) override;

  void OnHeartbeat() override;

 private:
  enum class Phase { kNew, kOpening, kOpen, kClosed };

  absl::Status Handle(const v1::VerifyRequest& request);
  absl::Status HandleOpen(const v1::Open& open);
  // Its constraint is compiled first, on another thread; only then is read on.
  void HandleConstrainedOpen(const v1::Open& open);
  absl::StatusOr<OpenArgs> BeginOpen(const v1::Open& open);
  absl::Status OpenSequence(OpenArgs args);
  absl::Status FailOpen(const absl::Status& status);
  void ReadOn(const absl::Status& handled);
  // The same where no reaction of gRPC keeps this object: its end, if it came, comes now.
  void EndConstrainedOpen(const absl::Status& handled);
  void FinishStream(const grpc::Status& status);
  absl::Status HandleRound(const v1::VerifyRequest& request);
  // Ends the stream with an error of its own; the first one counts.
  void Fault(const absl::Status& status);

  Verifier* const verifier_;
  const VerifierInfo* const info_;
  ConstraintCompiler* const constraints_;
  const Refusal* const refusal_;
  Heartbeat* const heartbeat_;
  grpc::CallbackServerContext* const context_;
  ServerOutbox<v1::VerifyResponse> outbox_;

  // Only touched by reads, of which one is outstanding at a time.
  v1::VerifyRequest request_;
  int64_t rounds_ = 0;
  bool stopped_ = false;

  // A Decode until drafting pays passes a drafter on its way, and every message costs there too: its tokens
  // leave together, though none waits longer than it takes to notice, or than a step.
  void Join(v1::VerifyResponse response);
  void SendJoined();
  std::atomic<bool> joins_{false};
  // Of the calls of SequenceSink.
  std::optional<v1::VerifyResponse> joined_;
  std::chrono::steady_clock::time_point sent_at_;

  // While another thread opens the stream, it must not end.
  std::mutex finish_mutex_;
  bool holds_finish_ = false;
  std::optional<grpc::Status> held_finish_;

  std::mutex mutex_;
  Phase phase_ = Phase::kNew;
  SequenceHandle sequence_ = 0;  // valid in kOpen
  std::optional<absl::Status> fault_;
  bool ready_ = false;
  std::optional<int> first_budget_;  // of the first round
  ProgressState state_ = ProgressState::kQueued;
  int prompt_tokens_done_ = 0;
};

}  // namespace arborist::verifier
