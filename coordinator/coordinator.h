#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_set>
#include <vector>

#include "common/log/log_limit.h"
#include "common/tokenizer/tokenizer.h"
#include "coordinator/admission.h"
#include "coordinator/config.h"
#include "coordinator/generation_defaults.h"
#include "coordinator/peer_router.h"
#include "coordinator/request_codec.h"
#include "coordinator/request_flow.h"
#include "coordinator/request_metrics.h"
#include "coordinator/worker.h"

namespace arborist::coordinator {

// A call that the ticker visits.
class WatchedCall {
 public:
  virtual void Tick(absl::Time now) = 0;

 protected:
  ~WatchedCall() = default;
};

// What all requests share. Thread-safe. The registry outlives it, and it outlives the last scrape.
class Coordinator {
 public:
  Coordinator(Config config, Tokenizer tokenizer, GenerationDefaults defaults,
              std::unique_ptr<PeerRouter> router, MetricRegistry& registry);

  const Config& config() const { return config_; }
  const Tokenizer& tokenizer() const { return tokenizer_; }
  const GenerationDefaults& defaults() const { return defaults_; }
  RequestLimits limits() const { return {config_.max_samples, config_.max_timeout}; }
  PeerRouter& router() { return *router_; }
  Admission& admission() { return admission_; }
  Worker& worker() { return worker_; }
  RequestMetrics& metrics() { return metrics_; }
  // Of the lines that tell of a request's end.
  LogLimit& log_limit() { return log_limit_; }

  std::string ModelName(const VerifierFacts& model) const;
  // Hash of all that can change an answer.
  std::string SystemFingerprint(const VerifierFacts& model) const;
  std::string NewRequestId();

  FlowSettings SettingsFor(const VerifierFacts& model);
  // The flow gets its ticks as long as it lives.
  void Watch(const std::shared_ptr<RequestFlow>& flow);
  // The call gets them until Unwatch, which waits for the one under way.
  void Watch(WatchedCall& call);
  void Unwatch(WatchedCall& call);
  void Tick();

 private:
  const Config config_;
  const Tokenizer tokenizer_;
  const GenerationDefaults defaults_;
  const std::string process_id_;  // makes request ids differ between processes
  std::atomic<uint64_t> requests_{0};
  Admission admission_;
  RequestMetrics metrics_;
  LogLimit log_limit_{/*per_second=*/100, /*burst=*/1000};
  std::mutex mutex_;
  std::vector<std::weak_ptr<RequestFlow>> flows_;  // guarded by mutex_
  std::mutex calls_mutex_;                         // held while calls are visited
  std::unordered_set<WatchedCall*> calls_;
  std::unique_ptr<PeerRouter> router_;
  Worker worker_;  // last: ends first
};

}  // namespace arborist::coordinator
