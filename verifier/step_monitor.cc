#include "verifier/step_monitor.h"

#include "common/metrics/buckets.h"

namespace arborist::verifier {
namespace {

prometheus::Gauge& Pages(MetricRegistry& registry, const char* state) {
  return registry.AddGauge("kv_cache_blocks", "Pages of the KV cache, 64 positions each.",
                           {{"state", state}});
}

prometheus::Counter& Rows(MetricRegistry& registry, const char* kind) {
  return registry.AddCounter("computed_rows_total", "Rows that steps computed.", {{"kind", kind}});
}

prometheus::Gauge& Sequences(MetricRegistry& registry, const char* state) {
  return registry.AddGauge("sequences", "Sequences that are open.", {{"state", state}});
}

}  // namespace

StepMonitor::StepMonitor(MetricRegistry& registry)
    : registry_(registry),
      duration_(registry.AddTally("verify_duration_seconds", "Time of a step.", kShortSeconds)),
      rows_(registry.AddTally("step_rows", "Rows of a step.", kPowersOfTwo)),
      sequences_(registry.AddTally("step_sequences", "Sequences with a part in a step.", kPowersOfTwo)),
      tree_rows_(Rows(registry, "tree")),
      prompt_rows_(Rows(registry, "prompt")),
      failed_(registry.AddCounter("step_failures_total", "Steps that failed.")),
      last_success_(registry.AddGauge("step_last_success_timestamp_seconds",
                                      "When a step last succeeded, since the epoch; 0 before the first.")),
      used_ratio_(registry.AddGauge("kv_cache_used_ratio", "Part of the KV cache's pages in use.")),
      pages_free_(Pages(registry, "free")),
      pages_used_(Pages(registry, "used")),
      cache_bytes_(registry.AddGauge("kv_cache_bytes", "Size of the KV cache.")),
      queued_(Sequences(registry, "queued")),
      running_(Sequences(registry, "running")) {}

void StepMonitor::Report(const StepReport& report) {
  if (!report.ok) {
    failed_.Increment();
    return;
  }
  duration_.Observe(report.seconds);
  rows_.Observe(report.tree_rows + report.prompt_rows);
  sequences_.Observe(report.sequences);
  tree_rows_.Increment(report.tree_rows);
  prompt_rows_.Increment(report.prompt_rows);
  last_success_.SetToCurrentTime();
}

void StepMonitor::Watch(const Verifier& verifier, int64_t page_bytes) {
  cache_bytes_.Set(static_cast<double>(verifier.total_pages() * page_bytes));
  registry_.BeforeScrape([this, &verifier] {
    const auto total = static_cast<double>(verifier.total_pages());
    const auto free = static_cast<double>(verifier.free_pages());
    pages_free_.Set(free);
    pages_used_.Set(total - free);
    used_ratio_.Set(total > 0 ? (total - free) / total : 0);
    const SequenceCounts counts = verifier.sequences();
    queued_.Set(counts.queued);
    running_.Set(counts.running);
  });
}

}  // namespace arborist::verifier
