#pragma once

#include <atomic>
#include <mutex>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "arborist/v1/verifier.grpc.pb.h"

namespace arborist::drafter::testing {

// A VerifierService without a model: the token after t is t + 1. The log-probability of position p is -p, and
// the list of token t names t .. t + top_log_probs - 1. Misbehaves on request.
class FakeVerifierService final : public v1::VerifierService::Service {
 public:
  grpc::Status GetInfo(grpc::ServerContext* context, const v1::VerifierServiceGetInfoRequest* request,
                       v1::VerifierServiceGetInfoResponse* response) override;
  grpc::Status Verify(grpc::ServerContext* context,
                      grpc::ServerReaderWriter<v1::VerifyResponse, v1::VerifyRequest>* stream) override;

  std::vector<v1::VerifyRequest> requests();

  std::atomic<int> protocol_version{1};
  std::atomic<bool> loading{false};
  std::atomic<bool> wrong_projection{false};
  std::atomic<int> next_budget{16};
  std::atomic<int> first_budget{-1};    // said with the first progress, if not negative
  std::atomic<int> pays_from{1 << 30};  // a position: from there on next_budget is 8
  std::atomic<int> silent_in_round{0};  // from then on nothing is said
  std::atomic<int> wrong_round_in{0};   // answers another round
  std::atomic<int> ends_in_round{0};    // ends the stream with OK
  std::atomic<int> fails_in_round{0};   // with `failure`
  absl::Status failure;
  std::atomic<int> feature_rows_on_attach{0};
  std::atomic<v1::FinishReason> finish_reason{v1::FINISH_REASON_MAX_TOKENS};  // of the last token

 private:
  struct Run;
  grpc::Status Answer(const v1::VerifyRequest& request, Run& run);
  std::mutex mutex_;
  std::vector<v1::VerifyRequest> requests_;
};

}  // namespace arborist::drafter::testing
