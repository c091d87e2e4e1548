#include "drafter/verifier_client.h"

#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/rpc/protocol.h"
#include "common/rpc/status_bridge.h"

namespace arborist::drafter {

VerifierClient::VerifierClient(std::shared_ptr<grpc::Channel> channel, Options options,
                               std::function<void(const VerifierHandshake&)> on_change)
    : options_(std::move(options)),
      on_change_(std::move(on_change)),
      channel_(std::move(channel)),
      stub_(v1::VerifierService::NewStub(channel_)) {
  state_.not_ready_reason = "no handshake yet";
  thread_ = std::thread([this] { Run(); });
}

VerifierClient::~VerifierClient() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  stopping_changed_.notify_all();
  thread_.join();
}

VerifierHandshake VerifierClient::state() const {
  std::lock_guard lock(mutex_);
  return state_;
}

void VerifierClient::Run() {
  std::optional<VerifierHandshake> said;
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    lock.unlock();
    const VerifierHandshake state = ShakeHands();
    lock.lock();
    state_ = state;
    lock.unlock();
    const bool changed =
        !said.has_value() || said->ready != state.ready || said->not_ready_reason != state.not_ready_reason;
    if (changed && on_change_) {
      on_change_(state);
    }
    said = state;
    lock.lock();
    stopping_changed_.wait_for(lock, options_.interval, [this] { return stopping_; });
  }
}

VerifierHandshake VerifierClient::ShakeHands() {
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + options_.deadline);
  v1::VerifierServiceGetInfoResponse info;
  const grpc::Status status = stub_->GetInfo(&context, {}, &info);
  VerifierHandshake state;
  if (!status.ok()) {
    state.not_ready_reason =
        absl::StrCat("verifier unreachable: ", status.error_message().empty()
                                                   ? absl::StatusCodeToString(FromGrpcStatus(status).code())
                                                   : status.error_message());
    return state;
  }
  state.fingerprint = info.fingerprint();
  state.vocabulary_size = info.vocabulary_size();
  state.max_tree_nodes = info.max_tree_nodes();
  if (info.protocol_version() != kProtocolVersion) {
    state.not_ready_reason = absl::StrCat("protocol_version=", info.protocol_version(),
                                          " of the verifier, expected ", kProtocolVersion);
  } else if (!options_.projection_hash.empty() && info.projection_hash() != options_.projection_hash) {
    state.not_ready_reason =
        absl::StrCat("projection_hash=", info.projection_hash().empty() ? "(none)" : info.projection_hash(),
                     " of the verifier, expected ", options_.projection_hash);
  } else if (info.max_tree_nodes() < 1) {
    state.not_ready_reason = "max_tree_nodes=0 of the verifier, expected at least 1";
  } else {
    state.ready = true;
  }
  return state;
}

}  // namespace arborist::drafter
