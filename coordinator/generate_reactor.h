#pragma once

#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "arborist/v1/coordinator.pb.h"
#include "common/rpc/server_outbox.h"
#include "coordinator/answer_codec.h"
#include "coordinator/coordinator.h"
#include "coordinator/request_codec.h"
#include "grpcpp/grpcpp.h"

namespace arborist::coordinator {

// One Generate call: the request becomes a flow for each of its answers, what they say becomes messages. The
// call ends when all flows have: with OK, or with the error of the first that failed, which cancels the
// others. Deletes itself in OnDone.
class GenerateReactor : public grpc::ServerWriteReactor<v1::GenerateResponse>, private WatchedCall {
 public:
  GenerateReactor(Coordinator& coordinator, grpc::CallbackServerContext& context,
                  const v1::GenerateRequest& request);

  void Start();

  void OnWriteDone(bool ok) override { outbox_.OnWriteDone(ok); }
  void OnCancel() override;
  void OnDone() override;

 private:
  // One answer.
  struct Sample : AnswerSink {
    Sample(GenerateReactor& reactor, uint32_t index) : reactor_(reactor), index_(index) {}
    void OnChunk(AnswerChunk chunk) override;
    void OnFinish(const Answer& answer) override;
    void OnError(const PathEnd& error) override { reactor_.SampleEnded(StatusFor(error)); }

   private:
    void Count(int64_t tokens);

    GenerateReactor& reactor_;
    const uint32_t index_;
    absl::Time last_tokens_ = absl::InfinitePast();
    bool cut_ = false;  // a chunk found no room: the rest must not look like the whole answer
  };

  // Cuts off a client that takes nothing: its answers would hold their places without end.
  void Tick(absl::Time now) override;
  void Begin();
  absl::Status Resolve();
  std::vector<std::shared_ptr<RequestFlow>> MakeFlows(ResolvedRequest resolved, const FlowSettings& settings);
  FlowSettings SettingsFor(ResolvedRequest& resolved);
  void SetEcho(const std::vector<TokenId>& prompt, int answers);
  void CancelFlows(const absl::Status& why);
  void SampleEnded(const absl::Status& status);
  void End(const absl::Status& status);
  absl::Status SlowReader() const;
  absl::Status StoppedReader() const;
  double SecondsSinceArrival() const;
  void NoLongerWaits();
  void LogEnd(absl::StatusCode code, const std::string& reason);

  Coordinator& coordinator_;
  grpc::CallbackServerContext& context_;
  const v1::GenerateRequest& request_;  // gRPC keeps it until OnDone
  const absl::Time arrived_;
  int admitted_ = 0;  // answers
  VerifierFacts model_;
  RequestFacts facts_;
  ServerOutbox<v1::GenerateResponse> outbox_;
  std::deque<Sample> samples_;

  std::mutex mutex_;  // guards what follows
  bool cancelled_ = false;
  bool cut_off_ = false;
  bool ended_well_ = false;                       // with all that is said still to be taken by the client
  absl::Time deadline_ = absl::InfiniteFuture();  // of its flows
  bool waits_ = false;                            // for its first tokens
  int64_t sent_tokens_ = 0;
  size_t running_ = 0;  // flows that have not ended
  absl::Status error_;  // the first
  std::vector<std::shared_ptr<RequestFlow>> flows_;
};

}  // namespace arborist::coordinator
