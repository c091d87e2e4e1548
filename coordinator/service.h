#pragma once

#include "arborist/v1/coordinator.grpc.pb.h"
#include "coordinator/coordinator.h"

namespace arborist::coordinator {

// The public API on top of a Coordinator, which outlives it.
class CoordinatorServiceImpl : public v1::CoordinatorService::CallbackService {
 public:
  explicit CoordinatorServiceImpl(Coordinator& coordinator) : coordinator_(coordinator) {}

  grpc::ServerWriteReactor<v1::GenerateResponse>* Generate(grpc::CallbackServerContext* context,
                                                           const v1::GenerateRequest* request) override;
  grpc::ServerUnaryReactor* Tokenize(grpc::CallbackServerContext* context, const v1::TokenizeRequest* request,
                                     v1::TokenizeResponse* response) override;
  grpc::ServerUnaryReactor* Detokenize(grpc::CallbackServerContext* context,
                                       const v1::DetokenizeRequest* request,
                                       v1::DetokenizeResponse* response) override;
  grpc::ServerUnaryReactor* GetModel(grpc::CallbackServerContext* context, const v1::GetModelRequest* request,
                                     v1::GetModelResponse* response) override;

 private:
  Coordinator& coordinator_;
};

}  // namespace arborist::coordinator
