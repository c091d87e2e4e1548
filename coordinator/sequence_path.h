#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/ids.h"

namespace arborist::coordinator {

// The words between a request and the processes that decode it, without a wire: request_flow speaks them, the
// gRPC clients translate them, tests fake them.

enum class Mode : uint8_t { kAuto, kTree, kChain, kOff };

enum class FinishReason : uint8_t { kNone, kStopId, kStopString, kMaxTokens, kContextLimit, kConstraint };

// What the output's text must match as a whole.
enum class ConstraintKind : uint8_t { kNone, kJsonSchema, kRegex };

struct LogitBias {
  TokenId token{};
  float bias = 0;
};

// Every value is resolved; see proto/arborist/v1/sequence.proto for meanings and bounds.
struct SamplingParameters {
  float temperature = 0;
  int32_t top_k = 0;
  float top_p = 1;
  float min_p = 0;
  uint64_t seed = 0;
  float repetition_penalty = 1;
  float presence_penalty = 0;
  float frequency_penalty = 0;
  std::vector<LogitBias> logit_bias;
  std::vector<TokenId> allowed_token_ids;  // empty: all
  std::vector<std::string> bad_words;
  int32_t min_tokens = 0;
  int32_t max_tokens = 0;
  std::vector<TokenId> stop_ids;
  bool log_probs = false;  // whether the client gets them; paths report them anyway
  int32_t top_log_probs = 0;
  bool prompt_log_probs = false;
  ConstraintKind constraint_kind = ConstraintKind::kNone;
  std::string constraint;
};

// What a path is asked to do: go on after prompt + output_so_far.
struct PathStart {
  std::string request_id;
  uint32_t sample_index = 0;  // with request_id the key of the sequence
  int64_t epoch = 1;
  std::vector<TokenId> prompt;
  std::vector<TokenId> output_so_far;
  SamplingParameters sampling;
  Mode mode = Mode::kOff;
  int32_t tree_nodes = 0;
  std::string drafter_projection_hash;  // of the drafter that may take over from plain decoding
  std::string fingerprint;              // of the verifier the sequence started on
  int32_t priority = 0;
  absl::Time deadline = absl::InfiniteFuture();
};

// Seconds, each >= 0.
struct PhaseSeconds {
  double queue = 0;
  double prefill = 0;
  double draft = 0;
  double verify = 0;
  double wire = 0;

  void Add(const PhaseSeconds& other) {
    queue += other.queue;
    prefill += other.prefill;
    draft += other.draft;
    verify += other.verify;
    wire += other.wire;
  }
};

struct TokenLogProb {
  TokenId token{};
  float log_prob = 0;

  friend bool operator==(const TokenLogProb&, const TokenLogProb&) = default;
};

// The most probable tokens at one position, descending.
using TopLogProbs = std::vector<TokenLogProb>;

// Newly committed tokens, as a path reports them. Nothing in it is trusted: request_flow checks it.
struct TokenRun {
  int64_t epoch = 0;
  int64_t first_position = 0;         // index of the first token in prompt + output
  std::vector<TokenId> tokens;        // none only where a constraint ends the answer without a further one
  std::vector<float> log_probs = {};  // one a token
  std::vector<TopLogProbs> top_log_probs = {};  // one a token if they were asked for
  int32_t accepted = 0;
  int32_t verified_nodes = 0;
  int32_t cut_nodes = 0;
  PhaseSeconds seconds = {};
  FinishReason finish = FinishReason::kNone;
};

// Log-probabilities of prompt tokens, in order and before the first run; checked too.
struct PromptScores {
  int64_t first_position = 0;  // in the prompt; its first token has none
  std::vector<float> log_probs;
};

// How a path ended. origin is the service at fault: "drafter", "verifier", or "" if nobody said (a broken
// connection). The status carries the details for the client.
struct PathEnd {
  absl::Status status;
  std::string origin;
  std::string reason;
};

// Hears of one path, from any thread, one call at a time. OnEnd comes exactly once and last.
class PathListener {
 public:
  virtual ~PathListener() = default;
  // Plain decoding of a request with AUTO has stopped: a drafter should take over, with a higher epoch.
  // Nothing but OnEnd follows.
  virtual void OnDraftingPays() = 0;
  virtual void OnPromptScores(PromptScores scores) = 0;
  virtual void OnRun(TokenRun run) = 0;
  virtual void OnProgress() = 0;
  virtual void OnEnd(PathEnd end) = 0;
};

// A running path. Cancel may be called from any thread, also after the end; OnEnd still comes.
class PathCall {
 public:
  virtual ~PathCall() = default;
  virtual void Cancel() = 0;
};

// What a verifier says of itself.
struct VerifierFacts {
  int32_t protocol_version = 0;
  std::string fingerprint;
  std::string projection_hash;
  std::string model_name;
  int32_t vocabulary_size = 0;
  int32_t context_length = 0;
  int32_t max_tree_nodes = 0;
};

// What a drafter says of itself.
struct DrafterFacts {
  int32_t protocol_version = 0;
  std::string proposer;
  std::string projection_hash;
  std::string verifier_fingerprint;
  bool ready = false;
};

// Shared ownership: a call lives until both its network side and its request are done with it.
class DrafterClient {
 public:
  virtual ~DrafterClient() = default;
  virtual const std::string& address() const = 0;
  // Waits for the answer, at most `timeout`.
  virtual absl::StatusOr<DrafterFacts> GetInfo(absl::Duration timeout) = 0;
  virtual std::shared_ptr<PathCall> Speculate(const PathStart& start,
                                              std::shared_ptr<PathListener> listener) = 0;
};

class VerifierClient {
 public:
  virtual ~VerifierClient() = default;
  virtual const std::string& address() const = 0;
  virtual absl::StatusOr<VerifierFacts> GetInfo(absl::Duration timeout) = 0;
  // Plain decoding to the end of the sequence; with mode AUTO until drafting pays.
  virtual std::shared_ptr<PathCall> Decode(const PathStart& start,
                                           std::shared_ptr<PathListener> listener) = 0;
};

// Knows who is usable now. Thread-safe; the clients live as long as the router.
class Router {
 public:
  virtual ~Router() = default;
  // A drafter that is ready and works with `verifier`, or null.
  virtual DrafterClient* ChooseDrafter(const VerifierClient& verifier) = 0;
  // Of its features; empty if it needs none.
  virtual std::string ProjectionOf(const DrafterClient& drafter) = 0;
  // Whether drafting paid on this verifier when a request with AUTO, such a temperature and such a drafter
  // (with features or without) last ended; true if none did.
  virtual bool DraftingPays(const VerifierClient& verifier, const DrafterClient& drafter,
                            float temperature) = 0;
  virtual void ReportDrafting(const VerifierClient& verifier, const DrafterClient& drafter, float temperature,
                              bool pays) = 0;
  // A verifier with this fingerprint that is not among `failed`, or null.
  virtual VerifierClient* ChooseVerifier(const std::string& fingerprint,
                                         const std::vector<const VerifierClient*>& failed) = 0;
  // Why ChooseVerifier finds none beside these, for people: "no other is configured" or what ails each.
  virtual std::string WhyNoOther(const std::string& fingerprint,
                                 const std::vector<const VerifierClient*>& failed) = 0;
  // A path broke; do not use the peer again before it has answered a probe.
  virtual void ReportFault(const DrafterClient& drafter) = 0;
  virtual void ReportFault(const VerifierClient& verifier) = 0;
};

}  // namespace arborist::coordinator
