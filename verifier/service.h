#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "arborist/v1/verifier.grpc.pb.h"
#include "common/rpc/heartbeat.h"
#include "verifier/constraint_compiler.h"
#include "verifier/refusal.h"
#include "verifier/verifier.h"
#include "verifier/verify_codec.h"

namespace arborist::verifier {

// VerifierService over a Verifier. It can be registered before the model is there: calls are UNAVAILABLE
// (LOADING) until Serve. The server is gone before the service is.
class VerifierServiceImpl final : public v1::VerifierService::CallbackService {
 public:
  // `set_health` hears from a thread of the service: OK after Serve, and the reason while a step has not
  // ended for longer than `stall_limit` although there is work, after RefuseNew, or once the device has
  // failed. May be empty.
  VerifierServiceImpl(std::chrono::milliseconds stall_limit,
                      std::function<void(const absl::Status&)> set_health);
  ~VerifierServiceImpl() override;

  // Once. The verifier outlives the service, as does the compiler; null: requests with a constraint are
  // refused.
  void Serve(Verifier* verifier, const VerifierInfo& info, ConstraintCompiler* constraints = nullptr);

  // Any thread, for good: GetInfo and an Open of what is not open here yet are UNAVAILABLE (NOT_SERVING) with
  // this reason, so that peers take another verifier, and `set_health` hears it. What is open goes on.
  void RefuseNew(const std::string& why) { refusal_.Begin(reason::kNotServing, why); }

  // The same with DRAINING, before the server is drained: what is open may change its owner until it ends, so
  // it needs the port. Returns when nothing is open, `most` is over or the device has failed.
  void EndOpen(std::chrono::milliseconds most);

  // After the server was drained: `set_health` is not called any more when it returns.
  void Stop();

  grpc::ServerUnaryReactor* GetInfo(grpc::CallbackServerContext* context,
                                    const v1::VerifierServiceGetInfoRequest* request,
                                    v1::VerifierServiceGetInfoResponse* response) override;
  grpc::ServerBidiReactor<v1::VerifyRequest, v1::VerifyResponse>* Verify(
      grpc::CallbackServerContext* context) override;

 private:
  absl::Status Health(const Verifier& verifier) const;
  void CheckHealth();

  const std::chrono::milliseconds stall_limit_;
  const std::function<void(const absl::Status&)> set_health_;
  VerifierInfo info_;  // written before verifier_, as is what follows
  ConstraintCompiler* constraints_ = nullptr;
  Refusal refusal_;
  std::atomic<Verifier*> verifier_{nullptr};
  bool serving_ = false;  // as last said; heartbeat thread only
  std::unique_ptr<Heartbeat> heartbeat_;
};

}  // namespace arborist::verifier
