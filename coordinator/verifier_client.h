#pragma once

#include <memory>
#include <string>

#include "arborist/v1/verifier.grpc.pb.h"
#include "coordinator/sequence_path.h"

namespace arborist::coordinator {

// A verifier over gRPC, for plain decoding.
class GrpcVerifierClient : public VerifierClient {
 public:
  GrpcVerifierClient(std::string address, int max_message_bytes);

  const std::string& address() const override { return address_; }
  absl::StatusOr<VerifierFacts> GetInfo(absl::Duration timeout) override;
  std::shared_ptr<PathCall> Decode(const PathStart& start, std::shared_ptr<PathListener> listener) override;

 private:
  const std::string address_;
  const std::unique_ptr<v1::VerifierService::Stub> stub_;
};

}  // namespace arborist::coordinator
