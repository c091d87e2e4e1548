#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <string>

#include "common/metrics/registry.h"
#include "verifier/budget_report.h"

namespace arborist::verifier {

// What the world hears of AUTO's decisions: metrics, with the labels `temperature` (0, to_0.7, above_0.7) and
// `features` (yes, no: what the drafter takes), and log lines.
//
//   arborist_auto_nodes                        that such sequences were last told to draft; 0: plain decoding
//   arborist_auto_trials_total                 begun
//   arborist_auto_expected_tokens_per_second   of all sequences, with the label choice: plain, trees
//
// A log line, `level=INFO event=auto temperature=... `, tells of a change between plain decoding and trees
// that is no trial, at most one in ten seconds and kind.
class BudgetMonitor {
 public:
  using Log = std::function<void(const std::string& line)>;

  // `log` gets a line without its end. The registry outlives the monitor.
  BudgetMonitor(MetricRegistry& registry, Log log);

  // For VerifierOptions; from one thread at a time.
  void Report(const BudgetReport& report);

 private:
  struct OfKind {
    prometheus::Gauge* nodes = nullptr;
    prometheus::Counter* trials = nullptr;
    prometheus::Gauge* plain_rate = nullptr;
    prometheus::Gauge* tree_rate = nullptr;
    int64_t trials_seen = 0;
    bool drafts = false;
    bool logged = false;
    std::chrono::steady_clock::time_point next_line{};
  };
  static OfKind MakeMetrics(MetricRegistry& registry, SamplingKind sampling, bool features);

  const Log log_;
  std::array<std::array<OfKind, 2>, kSamplingKinds.size()> kinds_;  // [sampling][features]
};

}  // namespace arborist::verifier
