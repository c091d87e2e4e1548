#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/ids.h"
#include "common/grammar/constraint.h"
#include "common/tree/token_tree.h"
#include "kernels/sample_target/sample_target.h"

namespace arborist::verifier {

// (request_id, sample_index) names a sequence; a higher epoch takes it over, a lower one is refused.
struct SequenceKey {
  std::string request_id;
  uint32_t sample_index = 0;
};

// kConstraint: nothing may follow, and no stop id could say so.
enum class FinishReason { kNone, kStopId, kMaxTokens, kContextLimit, kConstraint };

// Most of one sequence; more is refused.
inline constexpr int kMaxStopIds = 128;
inline constexpr int kMaxLogitBiases = 1024;
inline constexpr int kMaxTopLogProbs = 20;

// A value added to one token's logit.
struct LogitBias {
  TokenId token{};
  float bias = 0;
};

// What acts on logits besides the sampling parameters, and what is told of them. The default changes and
// tells nothing. Order: bias, allowed ids, penalties (DESIGN 3).
struct SamplingControls {
  float repetition_penalty = 1;  // > 0; of tokens in prompt or output
  float presence_penalty = 0;    // of tokens in the output
  float frequency_penalty = 0;   // per occurrence in the output
  std::vector<LogitBias> logit_bias;
  std::vector<TokenId> allowed_token_ids;  // empty: all
  int min_tokens = 0;                      // no stop id is chosen before so many output tokens
  int top_log_probs = 0;                   // most probable tokens told beside each
  bool prompt_log_probs = false;           // log-probabilities of the prompt's tokens are told
};

// A token and its log-probability under the raw logits.
struct TokenLogProb {
  TokenId token{};
  float log_prob = 0;

  bool operator==(const TokenLogProb&) const = default;
};

struct OpenArgs {
  SequenceKey key;
  int64_t epoch = 0;
  std::vector<TokenId> prompt;         // >= 1 token
  std::vector<TokenId> output_so_far;  // positions count prompt + output
  kernels::SamplingParams sampling;
  SamplingControls controls;
  std::shared_ptr<const Constraint> constraint;  // with these stop_ids; null: none
  std::vector<TokenId> stop_ids;  // end the sequence and are part of the output; empty with ignore_eos
  int max_tokens = 0;             // of the whole output, output_so_far included; > 0
  int priority = 0;               // larger is admitted earlier: a point is worth a second of waiting
  int tree_nodes = 0;             // largest drafted budget the owner will send; reserved at admission
  bool automatic = false;         // the owner follows next_budget, which is tree_nodes otherwise
  int feature_window = 0;         // newest rows wanted on attach; 0 = all
  std::string projection_hash;    // empty: no features wanted
  // Of the drafter that takes over when drafting pays, if the owner does not draft: whose budgets it is told.
  std::string drafter_projection_hash;
};

// One round's result. `tokens` are the newly committed ones (accepted drafts, then the bonus token), cut
// after a token that finishes the sequence.
struct Committed {
  int64_t epoch = 0;
  int64_t round = 0;
  bool last = false;           // of this Tree or Decode
  int32_t first_position = 0;  // 0-based index in prompt + output of tokens[0]
  std::vector<TokenId> tokens;
  std::vector<float> log_probs;  // of tokens, raw logits
  // [tokens, k] the most probable tokens beside each, descending, ties by id; k as asked for, at most the
  // vocabulary.
  std::vector<TokenLogProb> top_log_probs;
  int verified_nodes = 0;  // drafted nodes that were verified
  int cut_nodes = 0;       // drafted nodes cut off before verification
  bool compacted = false;  // the accepted path was not contiguous
  FinishReason finish_reason = FinishReason::kNone;
  int next_budget = 0;
  double queue_seconds = 0;
  double verify_seconds = 0;
  // Features of positions [feature_position, feature_position + feature_rows): bf16 rows of hidden size.
  int32_t feature_position = 0;
  int32_t feature_rows = 0;
  std::vector<uint16_t> features;
};

inline constexpr size_t kMaxPromptLogProbs = 4096;

enum class ProgressState { kQueued, kPrefill, kWaiting, kVerify };

// Receives what happens to one sequence, one call after the other, on the verifier's step thread or one that
// it waits for: implementations copy and return, never block. After OnClosed nothing more is called. Outlives
// the sequence.
class SequenceSink {
 public:
  virtual ~SequenceSink() = default;
  virtual void OnProgress(ProgressState state, int prompt_tokens_done) = 0;
  // Of prompt tokens [first_position, first_position + log_probs.size()), if asked for: in order, from the
  // second token on, all before OnReady; at most kMaxPromptLogProbs a call.
  virtual void OnPromptLogProbs(int32_t first_position, std::vector<float> log_probs) = 0;
  // Prefill is done: the sequence takes a Tree or Decode; so many nodes pay in the first. Features on attach
  // follow by OnFeatures, newest first.
  virtual void OnReady(int next_budget) = 0;
  virtual void OnFeatures(int32_t first_position, int32_t rows, std::vector<uint16_t> features) = 0;
  virtual void OnCommitted(Committed committed) = 0;
  // OK after a finish or Stop; ABORTED when a higher epoch took over; CANCELLED; else the fault.
  virtual void OnClosed(absl::Status status) = 0;
};

using SequenceHandle = int64_t;

// How many sequences wait for admission and how many have been admitted.
struct SequenceCounts {
  int queued = 0;
  int running = 0;
};

// The truth: owns the target model, the cache and the step thread. Calls are thread-safe and do not wait for
// a step.
class Verifier {
 public:
  virtual ~Verifier() = default;

  // Checks and admits (worst case reserved: prompt + max_tokens + tree) or queues; a full queue is
  // RESOURCE_EXHAUSTED, a request that can never fit INVALID_ARGUMENT, a lower epoch FAILED_PRECONDITION.
  // Prefills all tokens but the last. Samples of one request share the whole pages of their common text: they
  // wait until the one that computes it is done, and each computes what is left.
  virtual absl::StatusOr<SequenceHandle> Open(OpenArgs args, SequenceSink* sink) = 0;

  // One Tree or Decode may be outstanding; a second is FAILED_PRECONDITION. A malformed tree is
  // INVALID_ARGUMENT. After either error the caller ends the sequence. `round` is echoed.
  virtual absl::Status SubmitTree(SequenceHandle sequence, int64_t round, TokenTree tree) = 0;
  // Decodes up to max_tokens without a round trip each; one Committed a step, the final one has `last`.
  virtual absl::Status SubmitDecode(SequenceHandle sequence, int64_t round, int max_tokens) = 0;
  // The same, but an automatic sequence's ends earlier: with the first next_budget above 0.
  virtual absl::Status SubmitDecodeUntilDraftingPays(SequenceHandle sequence, int64_t round,
                                                     int max_tokens) = 0;

  // Ends after the round in flight (half-close, Stop), or at the next step boundary (cancel). OnClosed
  // follows.
  virtual void Finish(SequenceHandle sequence) = 0;
  virtual void Cancel(SequenceHandle sequence) = 0;

  // Whether a sequence of this key is open: a higher epoch would take it over.
  virtual bool IsOpen(const SequenceKey& key) const = 0;

  virtual int64_t free_pages() const = 0;
  virtual int64_t total_pages() const = 0;
  // As of the last step boundary. Waits for nothing.
  virtual SequenceCounts sequences() const = 0;
  // For health. Seconds since the last completed step while work exists, 0 when idle.
  virtual double stalled_seconds() const = 0;
  // UNAVAILABLE with the reason once the device has failed: nothing can be computed any more.
  virtual absl::Status device_status() const = 0;
};

}  // namespace arborist::verifier
