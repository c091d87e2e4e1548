#pragma once

#include <cstdint>

#include "common/metrics/registry.h"
#include "verifier/step_report.h"
#include "verifier/verifier.h"

namespace arborist::verifier {

// What the world hears of steps, of the cache and of the queue; names and meanings stand in
// common/metrics/README.md. Steps are counted without a lock; cache and queue are looked at when a scrape
// comes.
class StepMonitor {
 public:
  // The registry outlives the monitor.
  explicit StepMonitor(MetricRegistry& registry);

  // For VerifierOptions.
  void Report(const StepReport& report);

  // Once, when there is a verifier, which outlives the last scrape.
  void Watch(const Verifier& verifier, int64_t page_bytes);

 private:
  MetricRegistry& registry_;
  HistogramTally& duration_;
  HistogramTally& rows_;
  HistogramTally& sequences_;
  prometheus::Counter& tree_rows_;
  prometheus::Counter& prompt_rows_;
  prometheus::Counter& failed_;
  prometheus::Gauge& last_success_;
  prometheus::Gauge& used_ratio_;
  prometheus::Gauge& pages_free_;
  prometheus::Gauge& pages_used_;
  prometheus::Gauge& cache_bytes_;
  prometheus::Gauge& queued_;
  prometheus::Gauge& running_;
};

}  // namespace arborist::verifier
