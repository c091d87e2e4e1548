#include "drafter/drafter_metrics.h"

#include <algorithm>

#include "common/metrics/buckets.h"

namespace arborist::drafter {
namespace {

HistogramTally& AnswerTime(MetricRegistry& registry, const char* kind) {
  return registry.AddTally("verify_rpc_duration_seconds", "From a round's message to the verifier's answer.",
                           kShortSeconds, {{"kind", kind}});
}

}  // namespace

DrafterMetrics::DrafterMetrics(MetricRegistry& registry)
    : draft_duration_(registry.AddTally("draft_duration_seconds", "Time to draft a tree.", kShortSeconds)),
      tree_nodes_(registry.AddTally("draft_tree_nodes", "Drafted nodes of a tree.", kPowersOfTwo)),
      tree_depth_(registry.AddTally("speculative_tree_depth", "Depth of a drafted tree.", kSmallCounts)),
      tree_answer_(AnswerTime(registry, "tree")),
      decode_answer_(AnswerTime(registry, "decode")),
      trees_refused_(registry.AddCounter("trees_refused_total", "Trees that the verifier called malformed.")),
      running_(registry.AddGauge("sequences", "Sequences that are open.", {{"state", "running"}})),
      calls_(registry, "speculations_total", "Speculate calls that ended."),
      verifier_connected_(
          registry.AddGauge("verifier_connected", "1 while a verifier can be used, else 0.")) {}

void DrafterMetrics::Drafted(double seconds, const TokenTree& tree) {
  draft_duration_.Observe(seconds);
  tree_nodes_.Observe(tree.nodes() - 1);
  const std::vector<int32_t> depths = TreeDepths(tree.parent);
  tree_depth_.Observe(*std::max_element(depths.begin(), depths.end()));
}

void DrafterMetrics::Answered(double seconds, bool tree) {
  (tree ? tree_answer_ : decode_answer_).Observe(seconds);
}

}  // namespace arborist::drafter
