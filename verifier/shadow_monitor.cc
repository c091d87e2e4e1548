#include "verifier/shadow_monitor.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace arborist::verifier {
namespace {

constexpr std::chrono::seconds kInfoInterval(10);
constexpr std::chrono::seconds kErrorInterval(1);

std::string Line(const ShadowReport& report, int64_t left_out) {
  const ShadowDifference& difference = report.difference;
  std::string line = absl::StrFormat(
      "level=%s event=shadow kernel=%s step=%d rows=%d max_abs=%.3g mean_abs=%.3g relative=%.3g limit=%.3g "
      "mismatches=%d non_finite=%d",
      report.fault ? "ERROR" : "INFO", Name(report.kernel), report.step, report.rows, difference.max_abs,
      difference.mean_abs, difference.relative, report.limit, difference.mismatches, difference.non_finite);
  if (report.layer >= 0) {
    absl::StrAppend(&line, " layer=", report.layer);
  }
  if (left_out > 0) {
    absl::StrAppend(&line, " left_out=", left_out);
  }
  return line;
}

}  // namespace

ShadowMonitor::OfKernel ShadowMonitor::MakeMetrics(MetricRegistry& registry, ShadowKernel kernel) {
  const MetricRegistry::Labels labels = {{"kernel", std::string(Name(kernel))}};
  return {
      .rows = registry.AddCounter("shadow_rows_total", "Rows compared with an oracle.", labels),
      .faults = registry.AddCounter("shadow_faults_total",
                                    "Comparisons with a mismatch, a number that is not finite or a relative "
                                    "difference above the limit.",
                                    labels),
      .mismatches =
          registry.AddCounter("shadow_mismatches_total",
                              "Ids, nodes, rows of bytes or bits that must be equal and are not.", labels),
      .non_finite =
          registry.AddCounter("shadow_non_finite_total", "Numbers compared that are not finite.", labels),
      .max_abs = registry.AddGauge("shadow_max_abs_difference",
                                   "Largest absolute difference of the last comparison.", labels),
      .mean_abs = registry.AddGauge("shadow_mean_abs_difference",
                                    "Mean absolute difference of the last comparison.", labels),
      .relative = registry.AddGauge("shadow_relative_difference_ratio",
                                    "Largest difference relative to its row in the last comparison.", labels),
      .worst_relative =
          registry.AddGauge("shadow_worst_relative_difference_ratio",
                            "Largest difference relative to its row since the process began.", labels)};
}

ShadowMonitor::ShadowMonitor(MetricRegistry& registry, Log log, std::function<void()> on_fault)
    : log_(std::move(log)),
      on_fault_(std::move(on_fault)),
      steps_(registry.AddCounter("shadow_steps_total", "Steps of which kernels were compared with oracles.")),
      passed_over_(registry.AddCounter("shadow_passed_over_steps_total",
                                       "Steps chosen while the comparison before was still running.")) {
  for (const ShadowKernel kernel : kShadowKernels) {
    kernels_.emplace(kernel, MakeMetrics(registry, kernel));
  }
}

void ShadowMonitor::Report(const ShadowReport& report) {
  OfKernel& kernel = kernels_.at(report.kernel);
  const ShadowDifference& difference = report.difference;
  if (report.step != last_step_) {
    last_step_ = report.step;
    steps_.Increment();
  }
  kernel.rows.Increment(static_cast<double>(report.rows));
  kernel.faults.Increment(report.fault ? 1 : 0);
  kernel.mismatches.Increment(static_cast<double>(difference.mismatches));
  kernel.non_finite.Increment(static_cast<double>(difference.non_finite));
  kernel.max_abs.Set(difference.max_abs);
  kernel.mean_abs.Set(difference.mean_abs);
  kernel.relative.Set(difference.relative);
  kernel.worst_relative.Set(std::max(kernel.worst_relative.Value(), difference.relative));
  WriteLine(report, kernel);
  if (report.fault && on_fault_) {
    on_fault_();
  }
}

void ShadowMonitor::WriteLine(const ShadowReport& report, OfKernel& kernel) {
  const auto now = std::chrono::steady_clock::now();
  if (report.fault) {
    if (now < kernel.next_error) {
      ++kernel.left_out;
      return;
    }
    log_(Line(report, std::exchange(kernel.left_out, 0)));
    kernel.next_error = now + kErrorInterval;
  } else if (now >= kernel.next_info) {
    log_(Line(report, 0));
    kernel.next_info = now + kInfoInterval;
  }
}

}  // namespace arborist::verifier
