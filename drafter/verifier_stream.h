#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/ids.h"
#include "common/tensor/dtype.h"
#include "common/tree/token_tree.h"

namespace arborist::drafter {

using Clock = std::chrono::steady_clock;

enum class FinishReason { kNone, kStopId, kMaxTokens, kContextLimit, kConstraint };

struct TokenLogProb {
  TokenId token{};
  float log_prob = 0;
};
using TopLogProbs = std::vector<TokenLogProb>;  // of one position

// bf16 rows of neighbouring committed positions.
struct FeatureRows {
  int32_t first_position = 0;
  int32_t rows = 0;
  std::vector<BFloat16> values;
};

// What the verifier decided: see Committed in verifier.proto.
struct CommittedTokens {
  int64_t epoch = 0;
  int64_t round = 0;
  bool last = false;
  int32_t first_position = 0;
  std::vector<TokenId> tokens;
  std::vector<float> log_probs;
  std::vector<TopLogProbs> top_log_probs;  // a list a token, or none at all
  int verified_nodes = 0;
  int cut_nodes = 0;
  FinishReason finish_reason = FinishReason::kNone;
  int next_budget = 0;
  double queue_seconds = 0;
  double verify_seconds = 0;
  FeatureRows features;  // no rows when none are wanted
};

// Of the prompt's tokens from first_position on.
struct PromptLogProbs {
  int32_t first_position = 0;
  std::vector<float> log_probs;
};

enum class VerifierState { kQueued, kPrefill, kWaiting, kVerify };

struct VerifierProgress {
  VerifierState state = VerifierState::kQueued;
  int prompt_tokens_done = 0;
  std::optional<int> next_budget{};  // of the first round, if the verifier says it
};

struct VerifierEvent {
  Clock::time_point received;
  std::variant<CommittedTokens, FeatureRows, VerifierProgress, PromptLogProbs> message;
};

// The client side of one Verify stream, already opened. One thread, apart from Cancel.
class VerifierStream {
 public:
  virtual ~VerifierStream() = default;

  virtual void SendTree(int64_t round, const TokenTree& tree, double draft_seconds) = 0;
  // `until_drafting_pays`: the verifier may end it with a next_budget above 0.
  virtual void SendDecode(int64_t round, int max_tokens, bool until_drafting_pays) = 0;
  // The next message, in order. Blocks until one comes, the stream ends (its status, origin included; an end
  // with OK is Internal) or the verifier stays silent for too long (UNAVAILABLE, PEER_SILENT).
  virtual absl::StatusOr<VerifierEvent> Next() = 0;
  // Half-closes; what still comes is dropped.
  virtual void Stop() = 0;
  // Any thread: Next fails soon.
  virtual void Cancel() = 0;
};

}  // namespace arborist::drafter
