#pragma once

#include "absl/status/status.h"
#include "common/metrics/by_code.h"
#include "common/metrics/registry.h"
#include "common/tree/token_tree.h"

namespace arborist::drafter {

// What the world hears of drafting; names and meanings stand in common/metrics/README.md. Any thread, and
// nothing here waits.
class DrafterMetrics {
 public:
  // The registry outlives the metrics.
  explicit DrafterMetrics(MetricRegistry& registry);

  // The tree was made in so many seconds; one that is its root alone counts as well.
  void Drafted(double seconds, const TokenTree& tree);
  // The verifier's answer to a tree or Decode came so long after it was sent (or after the answer before).
  void Answered(double seconds, bool tree);
  // The verifier called a tree of ours malformed.
  void TreeRefused() { trees_refused_.Increment(); }
  void SequenceBegan() { running_.Increment(); }
  void SequenceEnded() { running_.Decrement(); }
  // A Speculate call ended, whether or not a sequence began.
  void CallEnded(absl::StatusCode code) { calls_.Count(code); }
  void VerifierConnected(bool connected) { verifier_connected_.Set(connected ? 1 : 0); }

 private:
  HistogramTally& draft_duration_;
  HistogramTally& tree_nodes_;
  HistogramTally& tree_depth_;
  HistogramTally& tree_answer_;
  HistogramTally& decode_answer_;
  prometheus::Counter& trees_refused_;
  prometheus::Gauge& running_;
  CountersByCode calls_;
  prometheus::Gauge& verifier_connected_;
};

}  // namespace arborist::drafter
