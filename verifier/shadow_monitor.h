#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <string>

#include "common/metrics/registry.h"
#include "verifier/shadow.h"

namespace arborist::verifier {

// What the world hears of shadow verification: metrics, log lines, and what happens at a fault.
//
// Metrics, all with the label `kernel` but the first two, all there from the start:
//   arborist_shadow_steps_total, _passed_over_steps_total   compared; chosen while a comparison was running
//   arborist_shadow_rows_total, _faults_total               rows compared; reports of a fault
//   arborist_shadow_mismatches_total, _non_finite_total     see ShadowDifference
//   arborist_shadow_max_abs_difference, _mean_abs_difference, _relative_difference_ratio   of the last report
//   arborist_shadow_worst_relative_difference_ratio         since the process began
//
// Log lines are `level=INFO|ERROR event=shadow kernel=... step=...` and so on, a key and a value each. An
// ERROR line tells of every fault, but at most one a second and kernel (`left_out` counts the others); an
// INFO line of what is well, at most one in ten seconds and kernel.
class ShadowMonitor {
 public:
  using Log = std::function<void(const std::string& line)>;

  // `log` gets a line without its end. `on_fault` may be null. The registry outlives the monitor.
  ShadowMonitor(MetricRegistry& registry, Log log, std::function<void()> on_fault);

  // For ShadowOptions; Report from one thread at a time, PassedOver from any.
  void Report(const ShadowReport& report);
  void PassedOver() { passed_over_.Increment(); }

 private:
  struct OfKernel {
    prometheus::Counter& rows;
    prometheus::Counter& faults;
    prometheus::Counter& mismatches;
    prometheus::Counter& non_finite;
    prometheus::Gauge& max_abs;
    prometheus::Gauge& mean_abs;
    prometheus::Gauge& relative;
    prometheus::Gauge& worst_relative;
    std::chrono::steady_clock::time_point next_info{};
    std::chrono::steady_clock::time_point next_error{};
    int64_t left_out = 0;  // ERROR lines
  };
  static OfKernel MakeMetrics(MetricRegistry& registry, ShadowKernel kernel);
  void WriteLine(const ShadowReport& report, OfKernel& kernel);

  const Log log_;
  const std::function<void()> on_fault_;
  prometheus::Counter& steps_;
  prometheus::Counter& passed_over_;
  std::map<ShadowKernel, OfKernel> kernels_;
  int64_t last_step_ = 0;
};

}  // namespace arborist::verifier
