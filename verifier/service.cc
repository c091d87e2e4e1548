#include "verifier/service.h"

#include <thread>
#include <utility>

#include "absl/strings/str_format.h"
#include "common/base/check.h"
#include "common/base/status_macros.h"
#include "common/rpc/protocol.h"
#include "common/rpc/status_bridge.h"
#include "common/tree/token_tree.h"
#include "verifier/verify_reactor.h"

namespace arborist::verifier {
namespace {

grpc::Status Loading() {
  return ToGrpcStatus(NotNow(reason::kLoading, "the model is being loaded"), kVerifierOrigin);
}

constexpr std::chrono::milliseconds kOpenInterval{20};

class RefusingReactor final : public grpc::ServerBidiReactor<v1::VerifyRequest, v1::VerifyResponse> {
 public:
  explicit RefusingReactor(const grpc::Status& status) { Finish(status); }
  void OnDone() override { delete this; }
};

}  // namespace

VerifierServiceImpl::VerifierServiceImpl(std::chrono::milliseconds stall_limit,
                                         std::function<void(const absl::Status&)> set_health)
    : stall_limit_(stall_limit),
      set_health_(std::move(set_health)),
      heartbeat_(std::make_unique<Heartbeat>(kHeartbeatInterval, [this] { CheckHealth(); })) {}

VerifierServiceImpl::~VerifierServiceImpl() = default;

void VerifierServiceImpl::Serve(Verifier* verifier, const VerifierInfo& info,
                                ConstraintCompiler* constraints) {
  Check(verifier_.load() == nullptr, "Serve is called once");
  info_ = info;
  constraints_ = constraints;
  verifier_.store(verifier, std::memory_order_release);
}

void VerifierServiceImpl::Stop() { heartbeat_.reset(); }

void VerifierServiceImpl::EndOpen(std::chrono::milliseconds most) {
  const Verifier* verifier = verifier_.load(std::memory_order_acquire);
  Check(verifier != nullptr, "EndOpen comes after Serve");
  refusal_.Begin(reason::kDraining, "the process is about to end");
  const auto end = std::chrono::steady_clock::now() + most;
  const auto is_open = [verifier] {
    const SequenceCounts counts = verifier->sequences();
    return counts.queued + counts.running > 0;
  };
  while (is_open() && verifier->device_status().ok() && std::chrono::steady_clock::now() < end) {
    std::this_thread::sleep_for(kOpenInterval);
  }
}

absl::Status VerifierServiceImpl::Health(const Verifier& verifier) const {
  RETURN_IF_ERROR(verifier.device_status());
  RETURN_IF_ERROR(refusal_.status());
  const double stalled = verifier.stalled_seconds();
  if (stalled > std::chrono::duration<double>(stall_limit_).count()) {
    return absl::UnavailableError(absl::StrFormat("no step has ended for %.1f s", stalled));
  }
  return absl::OkStatus();
}

void VerifierServiceImpl::CheckHealth() {
  const Verifier* verifier = verifier_.load(std::memory_order_acquire);
  if (verifier == nullptr) {
    return;
  }
  const absl::Status health = Health(*verifier);
  if (health.ok() != serving_ && set_health_) {
    set_health_(health);
  }
  serving_ = health.ok();
}

grpc::ServerUnaryReactor* VerifierServiceImpl::GetInfo(grpc::CallbackServerContext* context,
                                                       const v1::VerifierServiceGetInfoRequest*,
                                                       v1::VerifierServiceGetInfoResponse* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  const Verifier* verifier = verifier_.load(std::memory_order_acquire);
  if (verifier == nullptr) {
    reactor->Finish(Loading());
    return reactor;
  }
  if (const absl::Status refused = refusal_.status(); !refused.ok()) {
    reactor->Finish(ToGrpcStatus(refused, kVerifierOrigin));
    return reactor;
  }
  response->set_protocol_version(kProtocolVersion);
  response->set_fingerprint(info_.fingerprint);
  response->set_projection_hash(info_.projection_hash);
  response->set_model_name(info_.model_name);
  response->set_vocabulary_size(info_.vocabulary_size);
  response->set_hidden_size(info_.hidden_size);
  response->set_context_length(info_.context_length);
  response->set_max_tree_nodes(info_.max_tree_nodes);
  response->set_max_tree_depth(kMaxTreeDepth);
  response->set_max_sequences(info_.max_sequences);
  response->set_free_pages(verifier->free_pages());
  response->set_total_pages(verifier->total_pages());
  reactor->Finish(grpc::Status::OK);
  return reactor;
}

grpc::ServerBidiReactor<v1::VerifyRequest, v1::VerifyResponse>* VerifierServiceImpl::Verify(
    grpc::CallbackServerContext* context) {
  Verifier* verifier = verifier_.load(std::memory_order_acquire);
  if (verifier == nullptr) {
    return new RefusingReactor(Loading());
  }
  return new VerifyReactor(verifier, &info_, constraints_, &refusal_, heartbeat_.get(), context);
}

}  // namespace arborist::verifier
