#include "coordinator/coordinator.h"

#include <random>

#include "absl/strings/str_cat.h"

namespace arborist::coordinator {
namespace {

std::string RandomId() {
  std::random_device random;
  return absl::StrCat(absl::Hex((uint64_t{random()} << 32) | random(), absl::kZeroPad16));
}

}  // namespace

Coordinator::Coordinator(Config config, Tokenizer tokenizer, GenerationDefaults defaults,
                         std::unique_ptr<PeerRouter> router, MetricRegistry& registry)
    : config_(std::move(config)),
      tokenizer_(std::move(tokenizer)),
      defaults_(std::move(defaults)),
      process_id_(RandomId()),
      admission_(config_.max_requests),
      metrics_(registry),
      router_(std::move(router)) {
  registry.BeforeScrape([this] {
    metrics_.SetRunning(admission_.running());
    metrics_.SetPeers(router_->Model().has_value(), router_->Drafters().usable);
  });
}

std::string Coordinator::ModelName(const VerifierFacts& model) const {
  return config_.model_name.empty() ? model.model_name : config_.model_name;
}

std::string Coordinator::SystemFingerprint(const VerifierFacts& model) const {
  return absl::StrCat(model.fingerprint, "-", tokenizer_.hash());
}

std::string Coordinator::NewRequestId() { return absl::StrCat(process_id_, "-", ++requests_); }

FlowSettings Coordinator::SettingsFor(const VerifierFacts& model) {
  return {.peer_silence = absl::FromChrono(config_.rpc.peer_silence),
          .vocabulary_size = model.vocabulary_size,
          .context_length = model.context_length,
          .drafters_configured = !config_.drafters.empty(),
          .metrics = &metrics_};
}

void Coordinator::Watch(const std::shared_ptr<RequestFlow>& flow) {
  const std::lock_guard lock(mutex_);
  flows_.push_back(flow);
}

void Coordinator::Watch(WatchedCall& call) {
  const std::lock_guard lock(calls_mutex_);
  calls_.insert(&call);
}

void Coordinator::Unwatch(WatchedCall& call) {
  const std::lock_guard lock(calls_mutex_);
  calls_.erase(&call);
}

void Coordinator::Tick() {
  std::vector<std::shared_ptr<RequestFlow>> live;
  {
    const std::lock_guard lock(mutex_);
    std::erase_if(flows_, [](const std::weak_ptr<RequestFlow>& flow) { return flow.expired(); });
    for (const auto& flow : flows_) {
      if (auto locked = flow.lock()) {
        live.push_back(std::move(locked));
      }
    }
  }
  const absl::Time now = absl::Now();
  for (const auto& flow : live) {
    flow->Tick(now);
  }
  const std::lock_guard lock(calls_mutex_);
  for (WatchedCall* call : calls_) {
    call->Tick(now);
  }
}

}  // namespace arborist::coordinator
