#include "coordinator/generate_reactor.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/log/log_line.h"
#include "common/rpc/protocol.h"
#include "common/rpc/status_bridge.h"
#include "coordinator/prompt_echo.h"

namespace arborist::coordinator {
namespace {

// Encoding takes longer than a reaction may.
constexpr size_t kLongRequestBytes = 32 << 10;
// How long after its deadline a call waits for its client to take what is left.
constexpr absl::Duration kStatusPatience = absl::Seconds(2);

// Of each answer a chunk and its end, and what cannot be joined beside them.
ServerOutbox<v1::GenerateResponse>::Bounds OutboxBounds(const v1::GenerateRequest& request, size_t bytes) {
  const size_t answers = static_cast<size_t>(std::clamp(request.n(), 1, kMaxSamples));
  return {.messages = 2 + 2 * answers, .bytes = bytes, .merge_depth = 2 + 2 * answers};
}

LogLevel LevelOf(absl::StatusCode code) {
  switch (code) {
    case absl::StatusCode::kInternal:
      return LogLevel::kError;
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kResourceExhausted:
      return LogLevel::kWarning;
    default:
      return LogLevel::kInfo;
  }
}

}  // namespace

GenerateReactor::GenerateReactor(Coordinator& coordinator, grpc::CallbackServerContext& context,
                                 const v1::GenerateRequest& request)
    : coordinator_(coordinator),
      context_(context),
      request_(request),
      arrived_(absl::Now()),
      outbox_(
          OutboxBounds(request, coordinator.config().max_unsent_bytes), MergeChunks,
          [this](const v1::GenerateResponse* message) { StartWrite(message); },
          [this](const grpc::Status& status) { Finish(status); }) {}

void GenerateReactor::Start() {
  const absl::StatusOr<int> answers = ResolveSamples(request_, coordinator_.limits());
  if (!answers.ok()) {
    End(answers.status());
    return;
  }
  if (!coordinator_.admission().Enter(*answers)) {
    End(WithRetryDelay(
        ErrorWithReason(absl::StatusCode::kResourceExhausted, reason::kQueueFull,
                        absl::StrCat("max_requests=", coordinator_.config().max_requests,
                                     " leaves no room for ", *answers, " more now, expected fewer at once")),
        std::chrono::milliseconds(500)));
    return;
  }
  admitted_ = *answers;
  coordinator_.Watch(*this);
  waits_ = true;
  coordinator_.metrics().Awaiting(1);
  if (request_.ByteSizeLong() * static_cast<size_t>(*answers) > kLongRequestBytes) {
    const int priority = std::clamp(request_.priority(), -kMaxPriority, kMaxPriority);
    coordinator_.worker().Post([this] { Begin(); }, priority);
  } else {
    Begin();
  }
}

void GenerateReactor::Begin() {
  if (absl::Status status = Resolve(); !status.ok()) {
    End(status);
  }
}

absl::Status GenerateReactor::Resolve() {
  std::optional<VerifierFacts> model = coordinator_.router().Model();
  if (!model.has_value()) {
    return WithRetryDelay(
        ErrorWithReason(absl::StatusCode::kUnavailable, "NO_VERIFIER", "no verifier is ready, expected one"),
        std::chrono::milliseconds(1000));
  }
  model_ = *std::move(model);
  ASSIGN_OR_RETURN(ResolvedRequest resolved,
                   ResolveRequest(request_, model_, coordinator_.ModelName(model_), coordinator_.defaults(),
                                  coordinator_.limits(), coordinator_.tokenizer()));
  facts_ = {.request_id = coordinator_.NewRequestId(),
            .system_fingerprint = coordinator_.SystemFingerprint(model_),
            .seed = resolved.start.sampling.seed,
            .prompt_tokens = static_cast<int64_t>(resolved.start.prompt.size())};
  coordinator_.metrics().PromptRead(facts_.prompt_tokens);
  const FlowSettings settings = SettingsFor(resolved);
  const absl::Time deadline = resolved.start.deadline;
  const std::vector<std::shared_ptr<RequestFlow>> flows = MakeFlows(std::move(resolved), settings);
  Coordinator& coordinator = coordinator_;  // from here on a cancel may end the call, and with it this object
  {
    const std::lock_guard lock(mutex_);
    if (cancelled_) {
      return absl::CancelledError("the client is gone");
    }
    flows_ = flows;
    running_ = flows.size();
    deadline_ = deadline;
  }
  for (const auto& flow : flows) {
    coordinator.Watch(flow);
  }
  for (const auto& flow : flows) {
    flow->Start();
  }
  return absl::OkStatus();
}

std::vector<std::shared_ptr<RequestFlow>> GenerateReactor::MakeFlows(ResolvedRequest resolved,
                                                                     const FlowSettings& settings) {
  if (resolved.text.echo) {
    SetEcho(resolved.start.prompt, resolved.samples);
  }
  resolved.start.request_id = facts_.request_id;
  std::vector<std::shared_ptr<RequestFlow>> flows;
  for (int index = 0; index < resolved.samples; ++index) {
    PathStart start = resolved.start;
    start.sample_index = static_cast<uint32_t>(index);
    start.sampling.prompt_log_probs &= index == 0;  // the others' are the same
    Sample& sample = samples_.emplace_back(*this, start.sample_index);
    flows.push_back(std::make_shared<RequestFlow>(std::move(start), resolved.text, settings,
                                                  coordinator_.router(), coordinator_.tokenizer(), sample));
  }
  return flows;
}

// The earliest of the request's own limit, the server's and the call's, and its name.
FlowSettings GenerateReactor::SettingsFor(ResolvedRequest& resolved) {
  FlowSettings settings = coordinator_.SettingsFor(model_);
  const absl::Duration timeout = std::min(resolved.timeout, coordinator_.config().max_timeout);
  settings.deadline_name =
      resolved.timeout <= timeout
          ? absl::StrCat("timeout=", absl::FormatDuration(timeout))
          : absl::StrCat("the server's max_timeout_ms=", absl::ToInt64Milliseconds(timeout));
  resolved.start.deadline = arrived_ + timeout;
  if (const absl::Time of_call = absl::FromChrono(context_.deadline()); of_call < resolved.start.deadline) {
    resolved.start.deadline = of_call;
    settings.deadline_name = "the call's deadline";
  }
  return settings;
}

void GenerateReactor::SetEcho(const std::vector<TokenId>& prompt, int answers) {
  struct State {
    std::vector<TokenId> prompt;
    uint32_t sample = 0;
    std::optional<PromptEcho> echo;
  };
  auto state = std::make_shared<State>();
  state->prompt = prompt;
  outbox_.SetPrefaceSource([this, state, answers](v1::GenerateResponse& next) {
    if (state->echo.has_value() && state->echo->done()) {
      state->echo.reset();
      ++state->sample;
    }
    if (state->sample == static_cast<uint32_t>(answers)) {
      return false;
    }
    if (!state->echo.has_value()) {
      state->echo.emplace(coordinator_.tokenizer(), state->prompt);
    }
    next = EchoMessage(state->sample, state->echo->Next());
    return true;
  });
}

double GenerateReactor::SecondsSinceArrival() const {
  return std::max(0.0, absl::ToDoubleSeconds(absl::Now() - arrived_));
}

absl::Status GenerateReactor::SlowReader() const {
  return ErrorWithReason(absl::StatusCode::kResourceExhausted, reason::kSlowReader,
                         absl::StrCat("unsent output exceeds max_unsent_bytes=",
                                      coordinator_.config().max_unsent_bytes, ", expected a faster reader"));
}

absl::Status GenerateReactor::StoppedReader() const {
  return ErrorWithReason(absl::StatusCode::kResourceExhausted, reason::kSlowReader,
                         absl::StrCat("nothing was read for ", coordinator_.config().reader_patience.count(),
                                      " ms, expected a faster reader"));
}

// Under the coordinator's lock, so OnDone waits. gRPC runs no reaction on the stack of TryCancel.
void GenerateReactor::Tick(absl::Time now) {
  const bool reads_nothing = outbox_.WriteOverdue(coordinator_.config().reader_patience);
  bool had_ended_well = false;
  {
    const std::lock_guard lock(mutex_);
    if (cut_off_ || (!reads_nothing && now < deadline_ + kStatusPatience)) {
      return;
    }
    cut_off_ = true;
    had_ended_well = ended_well_;
  }
  if (had_ended_well) {  // else its flows have told or tell now
    coordinator_.metrics().GenerateFailed(StoppedReader(), reason::kSlowReader, kCoordinatorOrigin, false);
  } else {
    CancelFlows(StoppedReader());
  }
  context_.TryCancel();
}

void GenerateReactor::CancelFlows(const absl::Status& why) {
  std::vector<std::shared_ptr<RequestFlow>> flows;
  {
    const std::lock_guard lock(mutex_);
    flows = flows_;
  }
  for (const auto& flow : flows) {
    flow->Cancel(why);
  }
}

void GenerateReactor::OnCancel() {
  {
    const std::lock_guard lock(mutex_);
    cancelled_ = true;
  }
  CancelFlows(absl::CancelledError("the client is gone"));
}

void GenerateReactor::OnDone() {
  if (admitted_ > 0) {
    coordinator_.Unwatch(*this);
    coordinator_.admission().Leave(admitted_);
  }
  delete this;
}

// Of one flow, OK or its error. Nothing of this object may be touched after the last one's.
void GenerateReactor::SampleEnded(const absl::Status& status) {
  bool first_error = false;
  {
    const std::lock_guard lock(mutex_);
    if (!status.ok() && error_.ok()) {
      error_ = status;
      first_error = running_ > 1;
    }
  }
  if (first_error) {
    CancelFlows(absl::CancelledError("another answer of the request has failed"));
  }
  absl::Status end;
  {
    const std::lock_guard lock(mutex_);
    if (--running_ > 0) {
      return;
    }
    end = error_;
  }
  End(end);
}

void GenerateReactor::End(const absl::Status& status) {
  NoLongerWaits();
  const std::string reason = ReasonOf(status);
  if (!status.ok()) {
    const bool deadline_passed =
        IsOverByDeadline(absl::Now(), arrived_, absl::FromChrono(context_.deadline()));
    coordinator_.metrics().GenerateFailed(status, reason, OriginOf(status), deadline_passed);
  }
  coordinator_.metrics().CallEnded(Method::kGenerate, status.code(), SecondsSinceArrival());
  LogEnd(status.code(), reason);
  if (status.ok()) {
    {
      const std::lock_guard lock(mutex_);
      ended_well_ = true;
    }
    outbox_.Close(grpc::Status::OK);
  } else {
    outbox_.Abort(ToGrpcStatus(status, kCoordinatorOrigin));
  }
}

void GenerateReactor::NoLongerWaits() {
  {
    const std::lock_guard lock(mutex_);
    if (!std::exchange(waits_, false)) {
      return;
    }
  }
  coordinator_.metrics().Awaiting(-1);
}

// Ids, counts and times. A status's message may quote the request, so it is not there.
void GenerateReactor::LogEnd(absl::StatusCode code, const std::string& reason) {
  const std::optional<int64_t> left_out = coordinator_.log_limit().Allow();
  if (!left_out.has_value()) {
    return;
  }
  LogLine line(LevelOf(code), "request");
  line.Add("id", facts_.request_id).Add("client_id", request_.client_request_id());
  line.Add("code", absl::StatusCodeToString(code)).Add("reason", reason);
  line.Add("answers", static_cast<int64_t>(admitted_));
  line.Add("prompt_tokens", facts_.prompt_tokens).Add("output_tokens", sent_tokens_);
  line.Add("seconds", SecondsSinceArrival());
  if (*left_out > 0) {
    line.Add("left_out", *left_out);
  }
  line.Write();
}

void GenerateReactor::Sample::Count(int64_t tokens) {
  RequestMetrics& metrics = reactor_.coordinator_.metrics();
  const absl::Time now = absl::Now();
  bool first_of_call = false;
  {
    const std::lock_guard lock(reactor_.mutex_);
    first_of_call = reactor_.sent_tokens_ == 0;
    reactor_.sent_tokens_ += tokens;
  }
  if (first_of_call) {
    reactor_.NoLongerWaits();
    metrics.FirstTokens(reactor_.SecondsSinceArrival());
  }
  if (last_tokens_ != absl::InfinitePast()) {
    metrics.MoreTokens(std::max(0.0, absl::ToDoubleSeconds(now - last_tokens_)), tokens);
  }
  metrics.TokensSent(tokens);
  last_tokens_ = now;
}

void GenerateReactor::Sample::OnChunk(AnswerChunk chunk) {
  if (!chunk.prompt_log_probs.empty()) {
    reactor_.outbox_.PushPreface(ChunkMessage(index_, std::move(chunk)));
    return;
  }
  if (cut_) {
    return;
  }
  const int64_t tokens = static_cast<int64_t>(chunk.tokens.size());
  if (!reactor_.outbox_.PushResult(ChunkMessage(index_, std::move(chunk)))) {
    cut_ = true;
    reactor_.CancelFlows(reactor_.SlowReader());
  } else if (tokens > 0) {
    Count(tokens);
  }
}

void GenerateReactor::Sample::OnFinish(const Answer& answer) {
  if (cut_ || !reactor_.outbox_.PushResult(
                  FinalMessage(index_, reactor_.facts_, answer, reactor_.SecondsSinceArrival()))) {
    reactor_.SampleEnded(reactor_.SlowReader());
    return;
  }
  reactor_.coordinator_.metrics().Answered(answer.seconds.queue, answer.verified_nodes,
                                           answer.accepted_nodes);
  reactor_.SampleEnded(absl::OkStatus());
}

}  // namespace arborist::coordinator
