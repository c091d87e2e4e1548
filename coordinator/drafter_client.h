#pragma once

#include <memory>
#include <string>

#include "arborist/v1/drafter.grpc.pb.h"
#include "coordinator/sequence_path.h"

namespace arborist::coordinator {

// A drafter over gRPC.
class GrpcDrafterClient : public DrafterClient {
 public:
  GrpcDrafterClient(std::string address, int max_message_bytes);

  const std::string& address() const override { return address_; }
  absl::StatusOr<DrafterFacts> GetInfo(absl::Duration timeout) override;
  std::shared_ptr<PathCall> Speculate(const PathStart& start,
                                      std::shared_ptr<PathListener> listener) override;

 private:
  const std::string address_;
  const std::unique_ptr<v1::DrafterService::Stub> stub_;
};

}  // namespace arborist::coordinator
