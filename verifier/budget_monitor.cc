#include "verifier/budget_monitor.h"

#include <utility>

#include "absl/strings/str_format.h"

namespace arborist::verifier {
namespace {

constexpr std::chrono::seconds kLineInterval(10);

const char* YesOrNo(bool yes) { return yes ? "yes" : "no"; }

}  // namespace

BudgetMonitor::OfKind BudgetMonitor::MakeMetrics(MetricRegistry& registry, SamplingKind sampling,
                                                 bool features) {
  const MetricRegistry::Labels labels = {{"temperature", std::string(Name(sampling))},
                                         {"features", YesOrNo(features)}};
  const auto rate = [&](const char* choice) {
    MetricRegistry::Labels with_choice = labels;
    with_choice["choice"] = choice;
    return &registry.AddGauge("auto_expected_tokens_per_second",
                              "Tokens a second of all sequences that AUTO expects of a choice.", with_choice);
  };
  OfKind kind;
  kind.nodes =
      &registry.AddGauge("auto_nodes", "Nodes that AUTO last told to draft, 0 for plain decoding.", labels);
  kind.trials = &registry.AddCounter("auto_trials_total", "Trials of what AUTO did not do lately.", labels);
  kind.plain_rate = rate("plain");
  kind.tree_rate = rate("trees");
  return kind;
}

BudgetMonitor::BudgetMonitor(MetricRegistry& registry, Log log) : log_(std::move(log)) {
  for (const SamplingKind sampling : kSamplingKinds) {
    for (const bool features : {false, true}) {
      kinds_[static_cast<int>(sampling)][features] = MakeMetrics(registry, sampling, features);
    }
  }
}

void BudgetMonitor::Report(const BudgetReport& report) {
  OfKind& kind = kinds_[static_cast<int>(report.sampling)][report.features];
  kind.nodes->Set(report.nodes);
  kind.trials->Increment(static_cast<double>(report.trials - std::exchange(kind.trials_seen, report.trials)));
  kind.plain_rate->Set(report.plain_rate);
  kind.tree_rate->Set(report.tree_rate);
  const bool drafts = report.nodes > 0;
  const auto now = std::chrono::steady_clock::now();
  if (report.trial || (kind.logged && drafts == kind.drafts) || now < kind.next_line) {
    return;
  }
  kind.logged = true;
  kind.drafts = drafts;
  kind.next_line = now + kLineInterval;
  log_(absl::StrFormat(
      "level=INFO event=auto temperature=%s features=%s sequences=%d nodes=%d plain_tokens_per_second=%.0f "
      "tree_tokens_per_second=%.0f trials=%d",
      Name(report.sampling), YesOrNo(report.features), report.sequences, report.nodes, report.plain_rate,
      report.tree_rate, report.trials));
}

}  // namespace arborist::verifier
