#include "drafter/speculate_reactor.h"

#include <algorithm>
#include <utility>

#include "common/base/status_macros.h"
#include "common/rpc/protocol.h"
#include "common/rpc/status_bridge.h"
#include "common/rpc/tree_codec.h"
#include "drafter/drafter_metrics.h"
#include "drafter/grpc_verifier_stream.h"
#include "drafter/round_rules.h"
#include "drafter/speculate_codec.h"

namespace arborist::drafter {
namespace {

constexpr std::chrono::milliseconds kReaderPatience{5000};
constexpr std::chrono::milliseconds kStatusPatience{2000};
// Of a call without a deadline of its own.
constexpr std::chrono::hours kLongestSequence{24};

}  // namespace

SpeculateReactor::SpeculateReactor(const SpeculateShared* shared, v1::Sequence sequence,
                                   SpeculationRequest request, grpc::CallbackServerContext* context)
    : shared_(shared),
      sequence_(std::move(sequence)),
      request_(std::move(request)),
      context_(context),
      outbox_(
          {}, MergePlainTokens, [this](const v1::SpeculateResponse* message) { StartWrite(message); },
          [this](const grpc::Status& status) { Finish(status); }) {
  shared_->heartbeat->Add(this);
}

std::shared_ptr<const Constraint> SpeculateReactor::CompileConstraint() const {
  const v1::Sampling& sampling = sequence_.sampling();
  const bool is_free =
      sampling.json_schema().empty() && sampling.regex().empty() && sampling.bad_words().empty();
  if (is_free || shared_->constraints == nullptr) {
    return nullptr;
  }
  const ConstraintStore::Result constraint =
      shared_->constraints->Get({.json_schema = sampling.json_schema(),
                                 .regex = sampling.regex(),
                                 .bad_words = {sampling.bad_words().begin(), sampling.bad_words().end()},
                                 .stop_ids = DecodeTokens(sampling.stop_ids())});
  return constraint.ok() ? *constraint : nullptr;
}

absl::Status SpeculateReactor::RunLoop() {
  Proposer& proposer = *shared_->proposer;
  absl::StatusOr<std::unique_ptr<DraftContext>> draft_context = proposer.NewContext();
  RETURN_IF_ERROR(DrafterFault(draft_context.status()));
  const bool features = proposer.needs_features();
  // Wanted of the rows that there are: a context shorter than the proposer's window is no fault of the
  // request.
  const auto length = static_cast<int32_t>(request_.tokens.size());
  const v1::VerifyRequest open =
      EncodeOpen(sequence_, features ? std::min(proposer.feature_window(), length) : 0,
                 features ? proposer.projection_hash() : "");
  const auto deadline = std::min(context_->deadline(), std::chrono::system_clock::now() + kLongestSequence);
  GrpcVerifierStream stream(*shared_->verifier, open, deadline, shared_->peer_silence, *shared_->spin);
  {
    std::lock_guard lock(mutex_);
    if (end_.has_value()) {
      return *end_;
    }
    stream_ = &stream;
  }
  request_.constraint = CompileConstraint();  // while the verifier reads the prompt
  const absl::Status status = Speculate(request_, shared_->options, **draft_context, stream, *this);
  std::lock_guard lock(mutex_);
  stream_ = nullptr;
  return end_.value_or(status);
}

void SpeculateReactor::Run() {
  DrafterMetrics* const metrics = shared_->options.metrics;
  if (metrics != nullptr) {
    metrics->SequenceBegan();
  }
  const absl::Status status = RunLoop();
  SendHeld();
  if (metrics != nullptr) {
    metrics->SequenceEnded();
    metrics->CallEnded(status.code());
  }
  shared_->sequences->Remove(this);
  // Ending the call may delete this object at once, so it is the last thing done.
  if (status.code() == absl::StatusCode::kCancelled || ReasonOf(status) == reason::kSlowReader) {
    outbox_.Abort(ToGrpcStatus(status, kDrafterOrigin));
  } else {
    outbox_.Close(ToGrpcStatus(status, kDrafterOrigin));
  }
}

void SpeculateReactor::Refuse(const absl::Status& status) {
  if (shared_->options.metrics != nullptr) {
    shared_->options.metrics->CallEnded(status.code());
  }
  outbox_.Abort(ToGrpcStatus(status, kDrafterOrigin));
}

void SpeculateReactor::OnWriteDone(bool ok) {
  outbox_.OnWriteDone(ok);
  std::lock_guard lock(mutex_);
  changed_.notify_all();
}

void SpeculateReactor::OnCancel() {
  EndWith(absl::CancelledError("the call was cancelled or its deadline passed"));
}

void SpeculateReactor::OnDone() {
  shared_->heartbeat->Remove(this);
  delete this;
}

void SpeculateReactor::EndWith(const absl::Status& status) {
  std::lock_guard lock(mutex_);
  if (!end_.has_value()) {
    end_ = status;
  }
  if (stream_ != nullptr) {
    stream_->Cancel();
  }
  changed_.notify_all();
}

void SpeculateReactor::OnState(SpeculationState state, int prompt_tokens_done) {
  if (state != SpeculationState::kDraft) {
    SendHeld();
  }
  std::unique_lock lock(mutex_);
  // Within the rounds Tokens mark the changes; the heartbeat says the state.
  const bool say = state == SpeculationState::kPrefill && state_ != state;
  state_ = state;
  prompt_tokens_done_ = prompt_tokens_done;
  lock.unlock();
  if (say) {
    outbox_.PushSignOfLife(EncodeState(state, prompt_tokens_done));
  }
}

// To send takes as long as a tenth of a draft on a GPU, which meanwhile does nothing for this sequence; so
// the tokens of a tree may go after the next tree.
void SpeculateReactor::OnTokens(RoundTokens tokens) {
  SendHeld();
  v1::SpeculateResponse message = EncodeTokensMessage(tokens);
  const bool hold =
      shared_->tokens_follow_tree && tokens.verified_nodes > 0 && tokens.finish_reason == FinishReason::kNone;
  if (hold) {
    held_ = std::move(message);
  } else {
    Send(std::move(message));
  }
}

void SpeculateReactor::OnPromptLogProbs(PromptLogProbs log_probs) { Send(EncodePromptLogProbs(log_probs)); }

void SpeculateReactor::SendHeld() {
  if (held_.has_value()) {
    Send(*std::exchange(held_, std::nullopt));
  }
}

// The loop's thread waits for a slow reader, so that a busy moment of the coordinator costs time and not the
// stream.
void SpeculateReactor::Send(v1::SpeculateResponse message) {
  const auto patience = Clock::now() + kReaderPatience;
  std::unique_lock lock(mutex_);
  while (!end_.has_value() && !outbox_.PushResult(std::move(message))) {
    if (changed_.wait_until(lock, patience) == std::cv_status::timeout) {
      lock.unlock();
      EndWith(ErrorWithReason(absl::StatusCode::kResourceExhausted, reason::kSlowReader,
                              "the reader left 4 messages or 2 MiB unread"));
      return;
    }
  }
}

void SpeculateReactor::OnHeartbeat() {
  std::unique_lock lock(mutex_);
  const SpeculationState state = state_;
  const int done = prompt_tokens_done_;
  lock.unlock();
  if (state != SpeculationState::kStalled) {
    outbox_.PushSignOfLife(EncodeState(state, done));
  }
  if (outbox_.Overdue(kStatusPatience)) {
    context_->TryCancel();
  }
}

}  // namespace arborist::drafter
