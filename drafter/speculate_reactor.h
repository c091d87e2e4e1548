#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "arborist/v1/drafter.grpc.pb.h"
#include "arborist/v1/verifier.grpc.pb.h"
#include "common/grammar/constraint_store.h"
#include "common/rpc/heartbeat.h"
#include "common/rpc/server_outbox.h"
#include "common/threads/spin_wait.h"
#include "drafter/proposer.h"
#include "drafter/sequence_table.h"
#include "drafter/speculation_loop.h"
#include "grpcpp/support/server_callback.h"

namespace arborist::drafter {

// What all sequences of a drafter share; outlives them.
struct SpeculateShared {
  Proposer* proposer = nullptr;
  v1::VerifierService::Stub* verifier = nullptr;
  SequenceTable* sequences = nullptr;
  Heartbeat* heartbeat = nullptr;
  SpeculationOptions options;
  std::chrono::milliseconds peer_silence{0};
  SpinWait* spin = nullptr;         // of the loops that wait for the verifier
  bool tokens_follow_tree = false;  // a round's tokens go out when the next tree has left
  // Of the constraints that drafts follow; null: they follow none.
  std::shared_ptr<ConstraintStore> constraints{};
};

// One Speculate call: runs the loop on a worker's thread and streams what it says. Deletes itself when both
// gRPC and the worker are done with it.
class SpeculateReactor final : public grpc::ServerWriteReactor<v1::SpeculateResponse>,
                               public SpeculationSink,
                               public RunningSequence,
                               public HeartbeatListener {
 public:
  SpeculateReactor(const SpeculateShared* shared, v1::Sequence sequence, SpeculationRequest request,
                   grpc::CallbackServerContext* context);

  // The worker's task, once; may delete the reactor.
  void Run();
  // Instead of Run: ends the call at once.
  void Refuse(const absl::Status& status);

  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;

  void OnState(SpeculationState state, int prompt_tokens_done) override;
  void OnTokens(RoundTokens tokens) override;
  void OnPromptLogProbs(PromptLogProbs log_probs) override;
  void EndWith(const absl::Status& status) override;
  void OnHeartbeat() override;

 private:
  absl::Status RunLoop();
  // Null: there is none, or it is one that the verifier will refuse.
  std::shared_ptr<const Constraint> CompileConstraint() const;
  void Send(v1::SpeculateResponse message);
  void SendHeld();

  const SpeculateShared* const shared_;
  const v1::Sequence sequence_;
  SpeculationRequest request_;
  grpc::CallbackServerContext* const context_;
  ServerOutbox<v1::SpeculateResponse> outbox_;
  std::optional<v1::SpeculateResponse> held_;  // the loop's thread's

  std::mutex mutex_;
  std::condition_variable changed_;   // a write is done, or the end is decided
  VerifierStream* stream_ = nullptr;  // while the loop runs
  std::optional<absl::Status> end_;   // decided from outside the loop; the first one counts
  SpeculationState state_ = SpeculationState::kQueued;
  int prompt_tokens_done_ = 0;
};

}  // namespace arborist::drafter
