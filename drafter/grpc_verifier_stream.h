#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>

#include "arborist/v1/verifier.grpc.pb.h"
#include "common/threads/spin_wait.h"
#include "drafter/verifier_stream.h"
#include "grpcpp/support/client_callback.h"

namespace arborist::drafter {

// A Verify stream over gRPC: one read and one write outstanding, each started only after the previous one
// completed. A loop that reads late stops the reading, so flow control slows the verifier down.
class GrpcVerifierStream final : public VerifierStream,
                                 private grpc::ClientBidiReactor<v1::VerifyRequest, v1::VerifyResponse> {
 public:
  // Sends `open`. The stub and `spin`, which all streams share, outlive the stream.
  GrpcVerifierStream(v1::VerifierService::Stub& stub, const v1::VerifyRequest& open,
                     std::chrono::system_clock::time_point deadline, std::chrono::milliseconds peer_silence,
                     SpinWait& spin);
  // Cancels what still runs and waits for gRPC to let go: never inside a gRPC callback.
  ~GrpcVerifierStream() override;

  void SendTree(int64_t round, const TokenTree& tree, double draft_seconds) override;
  void SendDecode(int64_t round, int max_tokens, bool until_drafting_pays) override;
  absl::StatusOr<VerifierEvent> Next() override;
  void Stop() override;
  void Cancel() override;

 private:
  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnDone(const grpc::Status& status) override;

  void Send(v1::VerifyRequest request);
  // Under mutex_. StartWrite and StartRead never run reactions on the calling thread.
  void Pump();
  void ResumeReading();

  const std::chrono::milliseconds peer_silence_;
  SpinWait& spin_;
  grpc::ClientContext context_;
  v1::VerifyResponse incoming_;
  v1::VerifyRequest outgoing_;  // belongs to gRPC while writing_

  std::atomic<uint64_t> heard_{0};  // messages, and the end

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<v1::VerifyRequest> unsent_;
  bool writing_ = false;
  std::deque<VerifierEvent> events_;
  bool reading_ = false;
  bool ended_ = false;  // no more reads: nothing may be started
  std::optional<absl::Status> done_;
};

}  // namespace arborist::drafter
