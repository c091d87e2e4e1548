#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/tokenizer/tokenizer.h"
#include "coordinator/answer_text.h"
#include "coordinator/request_metrics.h"
#include "coordinator/sequence_path.h"
#include "coordinator/serial.h"

namespace arborist::coordinator {

// How an answer ended and what it took.
struct Answer {
  FinishReason finish = FinishReason::kNone;
  std::string stop_string;
  int64_t completion_tokens = 0;
  int64_t rounds = 0;
  std::vector<int32_t> accepted_lengths;  // tokens of each round, at most kMaxKeptRounds
  int64_t accepted_nodes = 0;
  int64_t verified_nodes = 0;
  int64_t cut_nodes = 0;
  int32_t fallbacks = 0;
  PhaseSeconds seconds;
};
inline constexpr size_t kMaxKeptRounds = 65536;

// A piece of an answer.
struct AnswerChunk {
  std::string text = {};
  std::vector<TokenId> tokens = {};
  std::vector<float> log_probs = {};            // one a token if they were asked for, else none
  std::vector<TopLogProbs> top_log_probs = {};  // the same
  std::vector<float> prompt_log_probs =
      {};  // before the first tokens: of the prompt's second token and so on
};

// Hears of one answer, one call at a time; OnFinish or OnError is the last. Must not block.
class AnswerSink {
 public:
  virtual ~AnswerSink() = default;
  virtual void OnChunk(AnswerChunk chunk) = 0;
  virtual void OnFinish(const Answer& answer) = 0;
  virtual void OnError(const PathEnd& error) = 0;
};

struct FlowSettings {
  absl::Duration peer_silence = absl::Milliseconds(300);  // a path that says nothing for so long is given up
  int32_t vocabulary_size = 0;
  int32_t context_length = 0;
  bool drafters_configured = false;
  std::string deadline_name = {};     // what set the request's deadline, for people
  RequestMetrics* metrics = nullptr;  // null: nothing is counted
};

// One request after its prompt is ids: picks a path, relays tokens as text, and when a path breaks goes on
// elsewhere without losing, repeating or changing a token.
//
// Each attempt has a higher epoch. Tokens of an older one are dropped; a gap, or a repeat that differs, is a
// fault of the path. What follows a fault of a drafter is plain decoding on the same verifier; after a fault
// of a verifier, another one of equal fingerprint; a fault of the request goes to the client.
//
// AUTO begins where such requests ended lately: at the drafter, or where drafting did not pay at the
// verifier, at the price of OFF; when drafting pays, the drafter takes over.
//
// Thread-safe: everything is done one at a time, whichever thread brings it.
class RequestFlow : public std::enable_shared_from_this<RequestFlow> {
 public:
  // `start` holds the request with every default resolved; epoch and output_so_far are the flow's.
  // The router, the tokenizer and the sink outlive the flow's last call to the sink.
  RequestFlow(PathStart start, TextRules rules, const FlowSettings& settings, Router& router,
              const Tokenizer& tokenizer, AnswerSink& sink);

  void Start();
  // The client is gone or must be told `why`; takes effect at once.
  void Cancel(absl::Status why);
  // Time passes: looks at the deadline and at the silence of the path. To be called often against
  // peer_silence.
  void Tick(absl::Time now);

 private:
  class Listener;
  enum class Path : uint8_t { kNone, kDrafter, kVerifier };

  void Begin();
  void BeginDrafting();
  void BeginUntilDraftingPays();
  void BeginDecode(VerifierClient& verifier);
  PathStart NextStart() const;
  bool IsStale(int64_t epoch) const { return done_ || epoch != state_.epoch; }
  void HandlePromptScores(int64_t epoch, PromptScores scores);
  void HandleRun(int64_t epoch, TokenRun run);
  void HandleDraftingPays(int64_t epoch);
  void HandleEnd(int64_t epoch, const PathEnd& end);
  void HandleTick(absl::Time now);
  void Relay(TokenRun run);
  AnswerText::Result TextOf(const TokenRun& run);
  void FellBack(FallbackReason reason);
  void PathErred(absl::Status status);
  void PathFault(const PathEnd& end);
  void GiveUp(const std::string& last_fault);
  VerifierClient* OtherVerifier(const PathEnd& end);
  void FinishText(FinishReason reason);
  void Finish(FinishReason reason);
  void Fail(const PathEnd& error);
  void CancelLeft();
  void CancelCall();

  PathStart state_;  // epoch and output_so_far grow
  const int32_t requested_max_tokens_;
  FlowSettings settings_;
  Router& router_;
  const Tokenizer& tokenizer_;
  AnswerSink& sink_;
  AnswerText text_;
  Answer answer_;
  int64_t prompt_scores_ = 0;  // log-probabilities of the prompt that the sink has

  Serial serial_;
  bool done_ = false;
  Path path_ = Path::kNone;
  DrafterClient* drafter_ = nullptr;
  VerifierClient* verifier_ = nullptr;
  std::vector<const VerifierClient*> failed_;
  std::string first_fault_;  // the one to tell: what came after it may only be that the peer is gone
  std::shared_ptr<PathCall> call_;
  std::shared_ptr<PathCall> left_;  // has decoded plainly, and its pages wait for the drafter
  int64_t plain_tokens_ = 0;
  int64_t tree_tokens_ = 0;
  absl::Duration silent_for_;
  absl::Time last_tick_ = absl::InfinitePast();
};

}  // namespace arborist::coordinator
