#pragma once

#include <array>
#include <map>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/metrics/by_code.h"
#include "common/metrics/registry.h"
#include "coordinator/sequence_path.h"

namespace arborist::coordinator {

// Why a request goes on at another path than it was on or wished for.
enum class FallbackReason : uint8_t {
  kDrafterUnavailable,
  kDrafterSilent,
  kDrafterFault,
  kVerifierSilent,
  kVerifierFault
};

enum class Method : uint8_t { kGenerate, kTokenize, kDetokenize, kGetModel };

// Whether a call that came at `arrived` and is cancelled at `now` ends by its deadline. A client counts its
// own time, which travels rounded up by as much as a hundredth: its word comes before the deadline known
// here.
bool IsOverByDeadline(absl::Time now, absl::Time arrived, absl::Time deadline);

// What the world hears of requests; names and meanings stand in common/metrics/README.md. Any thread, and
// nothing here waits.
class RequestMetrics {
 public:
  // The registry outlives the metrics.
  explicit RequestMetrics(MetricRegistry& registry);

  // A call of any method ended.
  void CallEnded(Method method, absl::StatusCode code, double seconds);
  // A Generate that ran ended so. `reason` and `origin` as the client gets them; its deadline may be what
  // cancelled it.
  void GenerateFailed(const absl::Status& status, const std::string& reason, const std::string& origin,
                      bool deadline_passed);
  // Its prompt is known.
  void PromptRead(int64_t tokens) { prompt_tokens_.Increment(static_cast<double>(tokens)); }
  // So many calls more that have no tokens yet.
  void Awaiting(int change) { awaiting_.Increment(change); }
  // The first tokens of a call leave for the client, so long after the call came.
  void FirstTokens(double seconds) { first_token_.Observe(seconds); }
  // So many tokens of an answer leave, so long after those before.
  void MoreTokens(double seconds, int64_t tokens);
  // Any.
  void TokensSent(int64_t tokens) { generated_tokens_.Increment(static_cast<double>(tokens)); }
  // An answer reached its end.
  void Answered(double queue_seconds, int64_t verified_nodes, int64_t accepted_nodes);

  // New tokens of a path. Only a round that verified a tree is counted.
  void Run(const TokenRun& run);
  void FellBack(FallbackReason reason) { fallbacks_[static_cast<size_t>(reason)]->Increment(); }
  void Detokenized(double seconds) { detokenize_.Observe(seconds); }

  // Looked at when a scrape comes.
  void SetRunning(int answers) { in_flight_.Set(answers); }
  void SetPeers(bool verifier, bool drafter);

 private:
  static constexpr size_t kFallbackReasons = 5;
  static constexpr int kDepths = 16;

  CountersByCode requests_;
  std::array<std::map<std::string, HistogramTally*>, 4> durations_;  // [method][code]
  HistogramTally& first_token_;
  HistogramTally& inter_token_;
  HistogramTally& chunk_interval_;
  HistogramTally& queue_;
  prometheus::Counter& prompt_tokens_;
  prometheus::Counter& generated_tokens_;
  prometheus::Gauge& in_flight_;
  prometheus::Gauge& awaiting_;
  std::map<std::string, prometheus::Counter*> rejected_;   // by reason
  std::map<std::string, prometheus::Counter*> cancelled_;  // by cause
  prometheus::Counter& rounds_;
  prometheus::Counter& draft_nodes_;
  prometheus::Counter& accepted_;
  prometheus::Counter& emitted_;
  HistogramTally& accepted_length_;
  std::array<prometheus::Counter*, kDepths + 1> accepted_by_depth_;  // the last: deeper
  HistogramTally& tree_nodes_;
  HistogramTally& acceptance_ratio_;
  std::array<prometheus::Counter*, kFallbackReasons> fallbacks_;
  HistogramTally& detokenize_;
  prometheus::Gauge& verifier_connected_;
  prometheus::Gauge& drafter_connected_;
};

}  // namespace arborist::coordinator
