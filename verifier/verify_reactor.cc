#include "verifier/verify_reactor.h"

#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/rpc/protocol.h"
#include "common/rpc/status_bridge.h"
#include "common/rpc/tree_codec.h"
#include "verifier/constraint_codec.h"

namespace arborist::verifier {
namespace {

// How long an ended stream waits for its reader to take the status; the pages are free by then.
constexpr std::chrono::milliseconds kStatusPatience{2000};
constexpr std::chrono::milliseconds kRetryDelay{200};
// Tokens of a Decode that come within this time after a message leave in the next one.
constexpr std::chrono::milliseconds kJoining{4};

absl::Status Precondition(const char* reason, const std::string& message) {
  return ErrorWithReason(absl::StatusCode::kFailedPrecondition, reason, message);
}

// Gives the verifier's own errors the reason that belongs to the call they came from.
absl::Status WithDefaultReason(const absl::Status& status, absl::StatusCode code, const char* reason) {
  return status.code() == code && ReasonOf(status).empty() ? WithReason(status, reason) : status;
}

absl::Status OpenError(absl::Status status) {
  status = WithDefaultReason(status, absl::StatusCode::kFailedPrecondition, reason::kStaleEpoch);
  if (status.code() == absl::StatusCode::kResourceExhausted) {
    status = WithRetryDelay(WithDefaultReason(status, status.code(), reason::kQueueFull), kRetryDelay);
  }
  return status;
}

// What a slow reader left waiting.
bool MergeWaiting(v1::VerifyResponse& tail, v1::VerifyResponse& next) {
  return MergeDecoded(tail, next) || MergePromptLogProbs(tail, next);
}

absl::Status RoundError(absl::Status status, const char* invalid_reason) {
  status = WithDefaultReason(status, absl::StatusCode::kInvalidArgument, invalid_reason);
  return WithDefaultReason(status, absl::StatusCode::kFailedPrecondition, reason::kRoundInFlight);
}

}  // namespace

VerifyReactor::VerifyReactor(Verifier* verifier, const VerifierInfo* info, ConstraintCompiler* constraints,
                             const Refusal* refusal, Heartbeat* heartbeat,
                             grpc::CallbackServerContext* context)
    : verifier_(verifier),
      info_(info),
      constraints_(constraints),
      refusal_(refusal),
      heartbeat_(heartbeat),
      context_(context),
      outbox_(
          {}, MergeWaiting, [this](const v1::VerifyResponse* message) { StartWrite(message); },
          [this](const grpc::Status& status) { FinishStream(status); }) {
  heartbeat_->Add(this);
  StartRead(&request_);
}

void VerifyReactor::OnReadDone(bool ok) {
  if (!ok) {
    std::unique_lock lock(mutex_);
    const Phase phase = phase_;
    const SequenceHandle sequence = sequence_;
    lock.unlock();
    if (phase == Phase::kOpen) {
      verifier_->Finish(sequence);
    } else if (phase == Phase::kNew) {
      Fault(
          Precondition(reason::kNotOpen, "the stream ended before Open, expected open as the first message"));
    }
    return;
  }
  if (request_.has_open() && IsConstrained(request_.open().sequence().sampling())) {
    HandleConstrainedOpen(request_.open());
    return;
  }
  ReadOn(Handle(request_));
}

void VerifyReactor::ReadOn(const absl::Status& handled) {
  if (!handled.ok()) {
    Fault(handled);
    return;
  }
  request_.Clear();
  StartRead(&request_);
}

absl::Status VerifyReactor::Handle(const v1::VerifyRequest& request) {
  switch (request.message_case()) {
    case v1::VerifyRequest::kOpen:
      return HandleOpen(request.open());
    case v1::VerifyRequest::kTree:
    case v1::VerifyRequest::kDecode:
    case v1::VerifyRequest::kStop:
      return HandleRound(request);
    case v1::VerifyRequest::MESSAGE_NOT_SET:
      break;
  }
  return FieldError("message", "unset", "open, tree, decode or stop");
}

absl::StatusOr<OpenArgs> VerifyReactor::BeginOpen(const v1::Open& open) {
  {
    std::lock_guard lock(mutex_);
    if (phase_ != Phase::kNew) {
      return Precondition(reason::kAlreadyOpen, "open came a second time, expected it once");
    }
  }
  ASSIGN_OR_RETURN(OpenArgs args, DecodeOpen(open, *info_));
  // A higher epoch of what is open only changes who drives it.
  if (const absl::Status refused = refusal_->status(); !refused.ok() && !verifier_->IsOpen(args.key)) {
    return refused;
  }
  {
    std::lock_guard lock(mutex_);
    if (fault_.has_value()) {
      return *fault_;  // cancelled meanwhile: the stream has ended
    }
    phase_ = Phase::kOpening;
  }
  return args;
}

absl::Status VerifyReactor::HandleOpen(const v1::Open& open) {
  ASSIGN_OR_RETURN(OpenArgs args, BeginOpen(open));
  return OpenSequence(std::move(args));
}

void VerifyReactor::HandleConstrainedOpen(const v1::Open& open) {
  absl::StatusOr<OpenArgs> args = BeginOpen(open);
  if (!args.ok()) {
    ReadOn(args.status());
    return;
  }
  absl::StatusOr<ConstraintSpec> spec = constraints_ == nullptr
                                            ? NoTokenizer(open.sequence().sampling())
                                            : DecodeConstraint(open.sequence().sampling());
  if (!spec.ok()) {
    ReadOn(FailOpen(spec.status()));
    return;
  }
  {
    const std::lock_guard lock(finish_mutex_);
    holds_finish_ = true;
  }
  constraints_->Compile(
      *std::move(spec),
      [this, args = *std::move(args)](ConstraintCompiler::Result constraint) {
        if (!constraint.ok()) {
          EndConstrainedOpen(FailOpen(ConstraintError(constraint.status())));
          return;
        }
        OpenArgs with = args;
        with.constraint = *std::move(constraint);
        EndConstrainedOpen(OpenSequence(std::move(with)));
      },
      [this] {
        const std::lock_guard lock(mutex_);
        return !fault_.has_value();
      });
}

void VerifyReactor::EndConstrainedOpen(const absl::Status& handled) {
  ReadOn(handled);
  std::optional<grpc::Status> finish;
  {
    const std::lock_guard lock(finish_mutex_);
    holds_finish_ = false;
    finish = std::exchange(held_finish_, std::nullopt);
  }
  if (finish.has_value()) {
    Finish(*finish);  // may delete this object
  }
}

void VerifyReactor::FinishStream(const grpc::Status& status) {
  {
    const std::lock_guard lock(finish_mutex_);
    if (holds_finish_) {
      held_finish_ = status;
      return;
    }
  }
  Finish(status);
}

absl::Status VerifyReactor::FailOpen(const absl::Status& status) {
  const std::lock_guard lock(mutex_);
  phase_ = Phase::kNew;
  return fault_.value_or(status);
}

absl::Status VerifyReactor::OpenSequence(OpenArgs args) {
  const absl::StatusOr<SequenceHandle> sequence = verifier_->Open(std::move(args), this);
  if (!sequence.ok()) {
    return FailOpen(OpenError(sequence.status()));
  }
  std::unique_lock lock(mutex_);
  if (phase_ == Phase::kOpening) {  // else it has closed already
    phase_ = Phase::kOpen;
    sequence_ = *sequence;
  }
  const bool cancel = phase_ == Phase::kOpen && fault_.has_value();
  lock.unlock();
  if (cancel) {
    verifier_->Cancel(*sequence);
  }
  return absl::OkStatus();
}

absl::Status VerifyReactor::HandleRound(const v1::VerifyRequest& request) {
  std::unique_lock lock(mutex_);
  const Phase phase = phase_;
  const SequenceHandle sequence = sequence_;
  const bool ready = ready_;
  lock.unlock();
  if (phase == Phase::kClosed) {
    return absl::OkStatus();  // it crossed the end of the sequence on the way
  }
  if (phase != Phase::kOpen || stopped_) {
    return Precondition(reason::kNotOpen, stopped_ ? "a message came after stop, expected none"
                                                   : "tree, decode or stop came before open");
  }
  if (request.has_stop()) {
    stopped_ = true;
    verifier_->Finish(sequence);
    return absl::OkStatus();
  }
  if (!ready) {
    return Precondition(reason::kNotReady, "tree or decode came before progress said WAITING");
  }
  const int64_t round = request.has_tree() ? request.tree().round() : request.decode().round();
  if (round != rounds_ + 1) {
    return FieldError("round", absl::StrCat(round), absl::StrCat(rounds_ + 1));
  }
  rounds_ = round;
  lock.lock();
  first_budget_.reset();
  lock.unlock();
  if (request.has_tree()) {
    RETURN_IF_ERROR(CheckDraftSeconds(request.tree().draft_seconds()));
    return RoundError(verifier_->SubmitTree(sequence, round, DecodeTree(request.tree().tree())),
                      reason::kBadTree);
  }
  if (request.decode().max_tokens() < 1) {
    return FieldError("decode.max_tokens", absl::StrCat(request.decode().max_tokens()), "a value >= 1");
  }
  const v1::Decode& decode = request.decode();
  joins_ = decode.until_drafting_pays();
  return RoundError(decode.until_drafting_pays()
                        ? verifier_->SubmitDecodeUntilDraftingPays(sequence, round, decode.max_tokens())
                        : verifier_->SubmitDecode(sequence, round, decode.max_tokens()),
                    reason::kBadRequest);
}

void VerifyReactor::Fault(const absl::Status& status) {
  std::unique_lock lock(mutex_);
  if (!fault_.has_value()) {
    fault_ = status;
  }
  const Phase phase = phase_;
  const SequenceHandle sequence = sequence_;
  lock.unlock();
  if (phase == Phase::kOpen) {
    verifier_->Cancel(sequence);  // OnClosed ends the stream
  } else if (phase == Phase::kNew) {
    outbox_.Abort(ToGrpcStatus(status, kVerifierOrigin));
  }
}

void VerifyReactor::OnWriteDone(bool ok) { outbox_.OnWriteDone(ok); }

void VerifyReactor::OnCancel() {
  Fault(absl::CancelledError("the call was cancelled or its deadline passed"));
}

void VerifyReactor::OnDone() {
  heartbeat_->Remove(this);
  delete this;
}

void VerifyReactor::OnProgress(ProgressState state, int prompt_tokens_done) {
  std::unique_lock lock(mutex_);
  // Once ready, Tree and Committed themselves mark the changes; the heartbeat repeats the state.
  const bool say = !ready_ && (state != state_ || prompt_tokens_done != prompt_tokens_done_);
  state_ = state;
  prompt_tokens_done_ = prompt_tokens_done;
  lock.unlock();
  if (say && state != ProgressState::kWaiting) {
    outbox_.PushSignOfLife(EncodeProgress(state, prompt_tokens_done, std::nullopt));
  }
}

void VerifyReactor::OnPromptLogProbs(int32_t first_position, std::vector<float> log_probs) {
  outbox_.PushPreface(EncodePromptLogProbs(first_position, log_probs));
}

void VerifyReactor::OnReady(int next_budget) {
  std::unique_lock lock(mutex_);
  ready_ = true;
  first_budget_ = next_budget;
  state_ = ProgressState::kWaiting;
  const int done = prompt_tokens_done_;
  lock.unlock();
  outbox_.PushSignOfLife(EncodeProgress(ProgressState::kWaiting, done, next_budget));
}

void VerifyReactor::OnFeatures(int32_t first_position, int32_t rows, std::vector<uint16_t> features) {
  outbox_.PushBulk(EncodeFeatures(first_position, rows, features));
}

void VerifyReactor::OnCommitted(Committed committed) {
  const bool last = committed.last;
  Join(EncodeCommitted(committed));
  const auto now = std::chrono::steady_clock::now();
  if (last || !joins_.load() || now - sent_at_ >= kJoining) {
    sent_at_ = now;
    SendJoined();
  }
}

void VerifyReactor::Join(v1::VerifyResponse response) {
  if (joined_.has_value() && !MergeDecoded(*joined_, response)) {
    SendJoined();
  }
  if (!joined_.has_value()) {
    joined_ = std::move(response);
  }
}

void VerifyReactor::SendJoined() {
  if (!joined_.has_value()) {
    return;
  }
  const bool pushed = outbox_.PushResult(*std::move(joined_));
  joined_.reset();
  if (!pushed) {
    Fault(ErrorWithReason(absl::StatusCode::kResourceExhausted, reason::kSlowReader,
                          "the reader left 4 messages or 2 MiB unread"));
  }
}

void VerifyReactor::OnClosed(absl::Status status) {
  SendJoined();
  std::unique_lock lock(mutex_);
  phase_ = Phase::kClosed;
  const std::optional<absl::Status> fault = fault_;
  lock.unlock();
  // Ending the stream may delete this object at once, so it is the last thing done.
  if (fault.has_value()) {
    outbox_.Abort(ToGrpcStatus(*fault, kVerifierOrigin));
  } else {
    status = WithDefaultReason(status, absl::StatusCode::kAborted, reason::kTakenOver);
    status = WithDefaultReason(status, absl::StatusCode::kInternal, reason::kVerifierFault);
    outbox_.Close(ToGrpcStatus(status, kVerifierOrigin));
  }
}

void VerifyReactor::OnHeartbeat() {
  std::unique_lock lock(mutex_);
  const bool open = phase_ == Phase::kOpening || phase_ == Phase::kOpen;
  const ProgressState state = ready_ || state_ != ProgressState::kWaiting ? state_ : ProgressState::kPrefill;
  const int done = prompt_tokens_done_;
  const std::optional<int> budget = ready_ && state == ProgressState::kWaiting ? first_budget_ : std::nullopt;
  lock.unlock();
  if (open) {
    outbox_.PushSignOfLife(EncodeProgress(state, done, budget));
  }
  if (outbox_.Overdue(kStatusPatience)) {
    context_->TryCancel();
  }
}

}  // namespace arborist::verifier
