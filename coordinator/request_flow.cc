#include "coordinator/request_flow.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "coordinator/path_fault.h"
#include "coordinator/run_check.h"

namespace arborist::coordinator {
namespace {

// A request that no path can serve must end; more attempts than this help nobody.
constexpr int64_t kMaxAttempts = 8;

}  // namespace

// Carries one attempt's events into the flow. Holds the flow, so that late events find it.
class RequestFlow::Listener : public PathListener {
 public:
  Listener(std::shared_ptr<RequestFlow> flow, int64_t epoch) : flow_(std::move(flow)), epoch_(epoch) {}

  void OnPromptScores(PromptScores scores) override {
    flow_->serial_.Post([flow = flow_, epoch = epoch_, scores = std::move(scores)]() mutable {
      flow->HandlePromptScores(epoch, std::move(scores));
    });
  }
  void OnRun(TokenRun run) override {
    flow_->serial_.Post([flow = flow_, epoch = epoch_, run = std::move(run)]() mutable {
      flow->HandleRun(epoch, std::move(run));
    });
  }
  void OnDraftingPays() override {
    flow_->serial_.Post([flow = flow_, epoch = epoch_] { flow->HandleDraftingPays(epoch); });
  }
  void OnProgress() override {
    flow_->serial_.Post([flow = flow_, epoch = epoch_] {
      if (epoch == flow->state_.epoch) {
        flow->silent_for_ = absl::ZeroDuration();
      }
    });
  }
  void OnEnd(PathEnd end) override {
    flow_->serial_.Post(
        [flow = flow_, epoch = epoch_, end = std::move(end)] { flow->HandleEnd(epoch, end); });
  }

 private:
  std::shared_ptr<RequestFlow> flow_;
  const int64_t epoch_;
};

RequestFlow::RequestFlow(PathStart start, TextRules rules, const FlowSettings& settings, Router& router,
                         const Tokenizer& tokenizer, AnswerSink& sink)
    : state_(std::move(start)),
      requested_max_tokens_(state_.sampling.max_tokens),
      settings_(settings),
      router_(router),
      tokenizer_(tokenizer),
      sink_(sink),
      text_(tokenizer_, state_, std::move(rules)) {
  const int64_t room = settings_.context_length - static_cast<int64_t>(state_.prompt.size());
  state_.sampling.max_tokens = static_cast<int32_t>(std::min<int64_t>(requested_max_tokens_, room));
  state_.sampling.min_tokens = std::min(state_.sampling.min_tokens, state_.sampling.max_tokens);
  state_.epoch = 1;
}

void RequestFlow::Start() {
  serial_.Post([self = shared_from_this()] {
    if (!self->done_) {
      self->Begin();
    }
  });
}

void RequestFlow::Cancel(absl::Status why) {
  serial_.Post([self = shared_from_this(), why = std::move(why)] {
    if (!self->done_) {
      self->Fail({why, "coordinator", std::string(absl::StatusCodeToString(why.code()))});
    }
  });
}

void RequestFlow::Tick(absl::Time now) {
  serial_.Post([self = shared_from_this(), now] {
    if (!self->done_) {
      self->HandleTick(now);
    }
  });
}

void RequestFlow::Begin() {
  verifier_ = router_.ChooseVerifier(state_.fingerprint, failed_);
  if (verifier_ == nullptr) {
    Fail(NoVerifier("no verifier of the model is ready"));
    return;
  }
  if (state_.mode == Mode::kOff) {
    BeginDecode(*verifier_);
    return;
  }
  drafter_ = router_.ChooseDrafter(*verifier_);
  if (drafter_ == nullptr) {
    // With no drafter configured, AUTO has chosen plain decoding; otherwise the client gets less than it
    // asked for.
    if (settings_.drafters_configured || state_.mode != Mode::kAuto) {
      FellBack(FallbackReason::kDrafterUnavailable);
    }
    BeginDecode(*verifier_);
    return;
  }
  if (state_.mode == Mode::kAuto &&
      !router_.DraftingPays(*verifier_, *drafter_, state_.sampling.temperature)) {
    BeginUntilDraftingPays();
  } else {
    BeginDrafting();
  }
}

// What the sink has already is not asked for again: a new owner would read the whole prompt for it.
PathStart RequestFlow::NextStart() const {
  PathStart start = state_;
  start.sampling.prompt_log_probs = prompt_scores_ < OwedPromptScores(state_);
  return start;
}

void RequestFlow::BeginDrafting() {
  path_ = Path::kDrafter;
  silent_for_ = absl::ZeroDuration();
  call_ = drafter_->Speculate(NextStart(), std::make_shared<Listener>(shared_from_this(), state_.epoch));
}

void RequestFlow::BeginUntilDraftingPays() {
  path_ = Path::kVerifier;
  silent_for_ = absl::ZeroDuration();
  PathStart start = NextStart();
  start.drafter_projection_hash = router_.ProjectionOf(*drafter_);
  call_ = verifier_->Decode(start, std::make_shared<Listener>(shared_from_this(), state_.epoch));
}

// The stream is left open: the drafter's takes over its pages, and it ends by that.
void RequestFlow::HandleDraftingPays(int64_t epoch) {
  if (IsStale(epoch)) {
    return;
  }
  left_ = std::move(call_);
  ++state_.epoch;
  drafter_ = router_.ChooseDrafter(*verifier_);
  if (drafter_ == nullptr) {
    FellBack(FallbackReason::kDrafterUnavailable);
    BeginDecode(*verifier_);
  } else {
    BeginDrafting();
  }
}

void RequestFlow::BeginDecode(VerifierClient& verifier) {
  path_ = Path::kVerifier;
  verifier_ = &verifier;
  silent_for_ = absl::ZeroDuration();
  PathStart start = NextStart();
  start.mode = Mode::kOff;
  start.tree_nodes = 0;
  call_ = verifier.Decode(start, std::make_shared<Listener>(shared_from_this(), state_.epoch));
}

void RequestFlow::HandlePromptScores(int64_t epoch, PromptScores scores) {
  if (IsStale(epoch)) {
    return;
  }
  silent_for_ = absl::ZeroDuration();
  if (absl::Status status = TakeNew(state_, prompt_scores_, scores); !status.ok()) {
    PathErred(std::move(status));
    return;
  }
  if (!scores.log_probs.empty()) {
    prompt_scores_ += static_cast<int64_t>(scores.log_probs.size());
    sink_.OnChunk({.prompt_log_probs = std::move(scores.log_probs)});
  }
}

void RequestFlow::HandleRun(int64_t epoch, TokenRun run) {
  // An attempt that was given up may still speak; so may a drafter that woke up with an old epoch in hand.
  if (IsStale(epoch) || run.epoch < state_.epoch) {
    return;
  }
  silent_for_ = absl::ZeroDuration();
  CancelLeft();
  absl::Status status = TakeNew(state_, settings_.vocabulary_size, run);
  if (const int64_t owed = OwedPromptScores(state_); prompt_scores_ < owed) {
    status.Update(absl::InternalError(absl::StrCat("tokens come after ", prompt_scores_,
                                                   " of the prompt's log-probabilities, expected ", owed)));
  }
  if (!status.ok()) {
    PathErred(std::move(status));
    return;
  }
  Relay(std::move(run));
}

AnswerText::Result RequestFlow::TextOf(const TokenRun& run) {
  const absl::Time begin = absl::Now();
  AnswerText::Result piece = text_.Append(run.tokens);
  if (settings_.metrics != nullptr) {
    settings_.metrics->Detokenized(std::max(0.0, absl::ToDoubleSeconds(absl::Now() - begin)));
  }
  return piece;
}

void RequestFlow::Relay(TokenRun run) {
  AnswerText::Result piece = TextOf(run);
  run.tokens.resize(piece.taken);
  run.log_probs.resize(std::min(run.log_probs.size(), piece.taken));
  run.top_log_probs.resize(std::min(run.top_log_probs.size(), piece.taken));
  answer_.seconds.Add(run.seconds);
  if (!run.tokens.empty()) {
    // Plain steps that a slow reader left unread arrive joined: each token is a round of its own.
    const bool plain = run.verified_nodes == 0;
    (plain ? plain_tokens_ : tree_tokens_) += static_cast<int64_t>(run.tokens.size());
    const size_t rounds = plain ? run.tokens.size() : 1;
    const auto length = static_cast<int32_t>(plain ? 1 : run.tokens.size());
    answer_.rounds += static_cast<int64_t>(rounds);
    answer_.accepted_nodes += run.accepted;
    answer_.verified_nodes += run.verified_nodes;
    answer_.cut_nodes += run.cut_nodes;
    if (settings_.metrics != nullptr) {
      settings_.metrics->Run(run);
    }
    const size_t kept = std::min(rounds, kMaxKeptRounds - answer_.accepted_lengths.size());
    answer_.accepted_lengths.insert(answer_.accepted_lengths.end(), kept, length);
  }
  state_.output_so_far.insert(state_.output_so_far.end(), run.tokens.begin(), run.tokens.end());
  const bool ended = !piece.stopped && run.finish != FinishReason::kNone;
  if (ended) {
    piece.text += text_.Flush();
  }
  if (!run.tokens.empty() || !piece.text.empty()) {
    sink_.OnChunk({.text = std::move(piece.text),
                   .tokens = std::move(run.tokens),
                   .log_probs = std::move(run.log_probs),
                   .top_log_probs = std::move(run.top_log_probs)});
  }
  if (piece.stopped) {
    CancelCall();  // the path does not know the stop strings and would go on
    Finish(FinishReason::kStopString);
  } else if (ended) {
    Finish(run.finish);
  }
}

void RequestFlow::HandleEnd(int64_t epoch, const PathEnd& end) {
  if (IsStale(epoch)) {
    return;
  }
  call_.reset();
  if (!end.status.ok()) {
    PathFault(end);
    return;
  }
  PathFault({absl::InternalError("the path ended without a reason to finish, expected one"),
             path_ == Path::kDrafter ? "drafter" : "verifier", "UNFINISHED"});
}

void RequestFlow::HandleTick(absl::Time now) {
  if (now >= state_.deadline) {
    Fail({absl::DeadlineExceededError(
              absl::StrCat(settings_.deadline_name, " is over, expected the answer's end before")),
          "coordinator", "DEADLINE_EXCEEDED"});
    return;
  }
  // When this process itself was asleep, its peers were not silent: one tick counts for a part of the limit
  // only.
  const absl::Duration passed = std::min(now - last_tick_, settings_.peer_silence / 4);
  const bool first = last_tick_ == absl::InfinitePast();
  last_tick_ = now;
  if (first || path_ == Path::kNone) {
    return;
  }
  silent_for_ += passed;
  if (silent_for_ >= settings_.peer_silence) {
    PathFault(Silent(path_ == Path::kDrafter ? "drafter" : "verifier"));
  }
}

// After a fault of the verifier: another one of equal fingerprint. A silent one may only be late: the
// router's own questions decide whether it is lost, and without another one it is asked again.
VerifierClient* RequestFlow::OtherVerifier(const PathEnd& end) {
  const bool silent = end.reason == kPeerSilent;
  if (!silent) {
    router_.ReportFault(*verifier_);
  }
  failed_.push_back(verifier_);
  VerifierClient* other = router_.ChooseVerifier(state_.fingerprint, failed_);
  return other == nullptr && silent ? verifier_ : other;
}

// The path says what cannot be.
void RequestFlow::PathErred(absl::Status status) {
  PathFault({std::move(status), path_ == Path::kDrafter ? "drafter" : "verifier", "BAD_TOKENS"});
}

void RequestFlow::PathFault(const PathEnd& end) {
  CancelCall();
  if (IsRequestFault(end)) {
    Fail(end);
    return;
  }
  if (const FinishReason reason = CompleteReason(state_); reason != FinishReason::kNone) {
    FinishText(reason);  // the path broke after its last token, before it could say so
    return;
  }
  const Path broken = path_;
  path_ = Path::kNone;
  if (broken == Path::kDrafter) {
    if (!IsOverload(end)) {  // a full one works for others
      router_.ReportFault(*drafter_);
    }
  } else if (IsOverload(end)) {
    Fail(end);
    return;
  } else if (!IsTakenOver(end)) {
    verifier_ = OtherVerifier(end);
  }
  // A drafter's own fault is no reason to blame the verifier, which fails later.
  if (first_fault_.empty() && (broken != Path::kDrafter || end.origin == "verifier")) {
    first_fault_ = std::string(end.status.message());
  }
  if (verifier_ == nullptr || state_.epoch >= kMaxAttempts) {
    GiveUp(std::string(end.status.message()));
    return;
  }
  ++state_.epoch;
  FellBack(FallbackAfter(broken == Path::kDrafter, end));
  BeginDecode(*verifier_);
}

void RequestFlow::FellBack(FallbackReason reason) {
  ++answer_.fallbacks;
  if (settings_.metrics != nullptr) {
    settings_.metrics->FellBack(reason);
  }
}

void RequestFlow::GiveUp(const std::string& last_fault) {
  if (verifier_ != nullptr) {
    failed_.push_back(verifier_);  // it had its attempts
  }
  Fail(NoVerifier(absl::StrCat("the verifier failed (", first_fault_,
                               last_fault == first_fault_ ? "" : absl::StrCat("; then ", last_fault),
                               ") and ", router_.WhyNoOther(state_.fingerprint, failed_))));
}

void RequestFlow::FinishText(FinishReason reason) {
  if (std::string rest = text_.Flush(); !rest.empty()) {
    sink_.OnChunk({.text = std::move(rest)});
  }
  Finish(reason);
}

void RequestFlow::Finish(FinishReason reason) {
  done_ = true;
  call_.reset();
  CancelLeft();
  if (state_.mode == Mode::kAuto && path_ == Path::kDrafter) {
    // Not the last run: that may be one of a trial, in either direction.
    router_.ReportDrafting(*verifier_, *drafter_, state_.sampling.temperature, plain_tokens_ <= tree_tokens_);
  }
  const int64_t tokens = static_cast<int64_t>(state_.output_so_far.size());
  if (reason == FinishReason::kMaxTokens && tokens < requested_max_tokens_) {
    reason = FinishReason::kContextLimit;  // the path was given less than the client asked for
  }
  answer_.finish = reason;
  answer_.stop_string = text_.stop_string();
  answer_.completion_tokens = tokens;
  sink_.OnFinish(answer_);
}

void RequestFlow::Fail(const PathEnd& error) {
  done_ = true;
  CancelCall();
  sink_.OnError(error);
}

// The pages are the drafter's by now, if it works at the same verifier. At another one the call would hold
// its pages until the deadline.
void RequestFlow::CancelLeft() {
  if (left_ != nullptr) {
    left_->Cancel();
    left_.reset();
  }
}

void RequestFlow::CancelCall() {
  CancelLeft();
  if (call_ != nullptr) {
    call_->Cancel();
    call_.reset();
  }
}

}  // namespace arborist::coordinator
