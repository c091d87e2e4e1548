#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/base/ids.h"
#include "drafter/proposer.h"
#include "kernels/sample_target/sample_target.h"
#include "verifier/verifier.h"

namespace arborist::tests {

// One request of the gate.
struct GateRequest {
  std::string id;
  std::vector<TokenId> prompt;
  kernels::SamplingParams sampling;
  verifier::SamplingControls controls;
  std::vector<TokenId> stop_ids;
  std::shared_ptr<const Constraint> constraint;
  int max_tokens = 64;
};

// Where the drafter dies: the points of a round at which tokens or a tree are in flight.
enum class KillPoint { kNever, kBeforeTree, kAfterTreeSent, kBeforeTokensForwarded };

struct SpeculationPlan {
  drafter::TreeShape shape = drafter::TreeShape::kTree;
  int nodes = 16;
  KillPoint kill = KillPoint::kNever;
  int kill_every =
      3;  // rounds between two deaths; after each, plain decoding for some tokens, then a new drafter
  // Where the sequence goes on after half of its tokens; null = stays.
  verifier::Verifier* resume_on = nullptr;
};

struct GateResult {
  std::vector<TokenId> tokens;
  std::vector<float> log_probs;
  std::vector<verifier::TokenLogProb> top_log_probs;
  std::vector<float> prompt_log_probs;  // of every attachment, one after the other
  verifier::FinishReason finish_reason = verifier::FinishReason::kNone;
  int rounds = 0;            // trees that were verified
  int verifying_rounds = 0;  // of them, with at least one drafted node verified
  int64_t verified_nodes = 0;
  int64_t cut_nodes = 0;
  int64_t committed_by_trees = 0;  // tokens, bonus included
  int off_spine_rounds = 0;        // accepted a node that no chain of first candidates holds
  int compacted_rounds = 0;        // the accepted path was not contiguous
  int refused_trees = 0;           // INVALID_ARGUMENT
  int attaches = 0;                // streams opened

  double mean_accepted() const { return rounds > 0 ? static_cast<double>(committed_by_trees) / rounds : 0; }
};

// Adds the counts, not the text.
void AddCounts(const GateResult& from, GateResult& to);

// Decodes without a drafter: the text everything else must equal.
absl::StatusOr<GateResult> RunPlain(verifier::Verifier& verifier, const GateRequest& request);

// Decodes as drafter and coordinator do together: trees while the drafter is well, a new epoch and plain
// decoding when its tree is refused or it dies, then a new drafter that attaches in the middle.
absl::StatusOr<GateResult> RunSpeculative(verifier::Verifier& verifier, drafter::Proposer& proposer,
                                          const GateRequest& request, const SpeculationPlan& plan);

}  // namespace arborist::tests
