#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "arborist/v1/drafter.grpc.pb.h"
#include "common/rpc/heartbeat.h"
#include "drafter/proposer.h"
#include "drafter/sequence_table.h"
#include "drafter/speculate_reactor.h"
#include "drafter/verifier_client.h"
#include "drafter/worker_pool.h"
#include "grpcpp/channel.h"

namespace arborist::drafter {

struct DrafterServiceOptions {
  std::string proposer_name{};     // "dflash", "ngram"
  std::string verifier_address{};  // for people
  int max_sequences = 64;
  std::chrono::milliseconds peer_silence{300};
  // How long a loop looks for the verifier's answer before it sleeps, while there are one or two.
  std::chrono::microseconds spin{0};
  // Whether a round's tokens leave for the coordinator after the next tree instead of before it is drafted:
  // for drafts that a GPU makes in a fraction of a millisecond.
  bool tokens_follow_tree = false;
  bool coupled = true;
  int decode_tokens = 4;
  int plain_decode_tokens = 256;
  FaultPlan fault{};                                    // test hook
  DrafterMetrics* metrics = nullptr;                    // null: nothing is counted; outlives the service
  std::shared_ptr<const TokenVocabulary> vocabulary{};  // null: drafts do not follow constraints
};

// DrafterService over a proposer and one verifier. The server is gone before the service is.
class DrafterServiceImpl final : public v1::DrafterService::CallbackService {
 public:
  // `set_serving` hears whether it can speculate and if not, why, from a thread of the service. May be empty.
  // The proposer outlives the service.
  DrafterServiceImpl(Proposer* proposer, std::shared_ptr<grpc::Channel> verifier,
                     const DrafterServiceOptions& options,
                     std::function<void(const VerifierHandshake&)> set_serving);
  ~DrafterServiceImpl() override;

  // After the server was drained: no thread of the service runs any more when it returns.
  void Stop();

  grpc::ServerUnaryReactor* GetInfo(grpc::CallbackServerContext* context,
                                    const v1::DrafterServiceGetInfoRequest* request,
                                    v1::DrafterServiceGetInfoResponse* response) override;
  grpc::ServerWriteReactor<v1::SpeculateResponse>* Speculate(grpc::CallbackServerContext* context,
                                                             const v1::SpeculateRequest* request) override;

 private:
  absl::StatusOr<SpeculationRequest> Check(const v1::SpeculateRequest& request) const;

  Proposer* const proposer_;
  const DrafterServiceOptions options_;
  const std::shared_ptr<grpc::Channel> verifier_channel_;  // shared with the client
  const std::unique_ptr<v1::VerifierService::Stub> verifier_;
  SequenceTable sequences_;
  SpinWait spin_;
  SpeculateShared shared_;
  std::unique_ptr<Heartbeat> heartbeat_;
  std::unique_ptr<WorkerPool> workers_;
  std::unique_ptr<VerifierClient> client_;
};

}  // namespace arborist::drafter
