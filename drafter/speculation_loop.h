#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "common/base/ids.h"
#include "common/grammar/constraint.h"
#include "drafter/fault_points.h"
#include "drafter/proposer.h"
#include "drafter/verifier_stream.h"

namespace arborist::drafter {

class DrafterMetrics;

enum class SpeculationMode { kAuto, kTree, kChain };

struct SpeculationRequest {
  int64_t epoch = 0;
  std::vector<TokenId> tokens;  // prompt and output so far, >= 1
  SpeculationMode mode = SpeculationMode::kTree;
  int tree_nodes = 0;     // drafted nodes a round, >= 1
  float temperature = 0;  // of the sampling; the noise is coupled unless `coupled` is off
  uint64_t seed = 0;
  uint32_t sample_index = 0;
  int32_t prompt_tokens = 0;                     // of `tokens`; the rest is output
  std::shared_ptr<const Constraint> constraint;  // that drafts follow; null: none
};

struct SpeculationOptions {
  bool coupled = true;
  int decode_tokens = 4;          // of one Decode while the proposer lacks context, >= 1
  int plain_decode_tokens = 256;  // of one while drafting does not pay, >= 1; the verifier ends it earlier
  int max_depth = 0;              // of the proposer: a chain has at most this many nodes
  int feature_window = 0;         // of the proposer: newest rows that it looks at
  FaultPlan fault;
  DrafterMetrics* metrics = nullptr;  // null: nothing is counted
};

// Where the time since the previous tokens went.
struct RoundSeconds {
  double queue = 0;
  double prefill = 0;
  double draft = 0;
  double verify = 0;
  double wire = 0;
};

struct RoundTokens {
  int64_t epoch = 0;
  int32_t first_position = 0;
  std::vector<TokenId> tokens;
  std::vector<float> log_probs;
  std::vector<TopLogProbs> top_log_probs;  // a list a token, or none at all
  int64_t round = 0;
  int accepted = 0;  // drafted nodes among the tokens
  int verified_nodes = 0;
  int cut_nodes = 0;
  RoundSeconds seconds;
  FinishReason finish_reason = FinishReason::kNone;
};

enum class SpeculationState { kQueued, kPrefill, kDraft, kVerify, kStalled };

// Hears what happens to one sequence, on the loop's thread.
class SpeculationSink {
 public:
  virtual ~SpeculationSink() = default;
  virtual void OnState(SpeculationState state, int prompt_tokens_done) = 0;
  virtual void OnTokens(RoundTokens tokens) = 0;
  // Before the first tokens.
  virtual void OnPromptLogProbs(PromptLogProbs log_probs) = 0;
};

// Decodes one sequence to its end: draft, verify, emit, again. Returns OK when it finished by itself. Errors
// keep the verifier's origin; a draft that the verifier refused, or that could not be made, is Internal with
// origin "drafter".
absl::Status Speculate(const SpeculationRequest& request, const SpeculationOptions& options,
                       DraftContext& context, VerifierStream& verifier, SpeculationSink& sink);

}  // namespace arborist::drafter
