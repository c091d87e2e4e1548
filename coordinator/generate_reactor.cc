#include "coordinator/generate_reactor.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/log/log_line.h"
#include "common/rpc/protocol.h"
#include "common/rpc/status_bridge.h"
#include "common/rpc/tree_codec.h"
#include "coordinator/sequence_codec.h"

namespace arborist::coordinator {
namespace {

// Encoding takes longer than a reaction may.
constexpr size_t kLongTextBytes = 32 << 10;

// Chunks that wait become one: a slow reader gets fewer, larger ones.
bool MergeChunks(v1::GenerateResponse& tail, v1::GenerateResponse& next) {
  if (!tail.has_chunk() || !next.has_chunk()) {
    return false;
  }
  tail.mutable_chunk()->mutable_text()->append(next.chunk().text());
  tail.mutable_chunk()->mutable_token_ids()->MergeFrom(next.chunk().token_ids());
  return true;
}

}  // namespace

GenerateReactor::GenerateReactor(Coordinator& coordinator, grpc::CallbackServerContext& context,
                                 const v1::GenerateRequest& request)
    : coordinator_(coordinator),
      context_(context),
      request_(request),
      arrived_(absl::Now()),
      outbox_(
          {.messages = 4, .bytes = coordinator.config().max_unsent_bytes}, MergeChunks,
          [this](const v1::GenerateResponse* message) { StartWrite(message); },
          [this](const grpc::Status& status) { Finish(status); }) {}

void GenerateReactor::Start() {
  if (!coordinator_.admission().Enter()) {
    Refuse(WithRetryDelay(ErrorWithReason(absl::StatusCode::kResourceExhausted, reason::kQueueFull,
                                          absl::StrCat("requests=", coordinator_.config().max_requests,
                                                       " are running, expected fewer")),
                          std::chrono::milliseconds(500)));
    return;
  }
  admitted_ = true;
  if (request_.ByteSizeLong() > kLongTextBytes) {
    coordinator_.worker().Post([this] { Begin(); });
  } else {
    Begin();
  }
}

void GenerateReactor::Begin() {
  if (absl::Status status = Resolve(); !status.ok()) {
    Refuse(status);
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
                                  coordinator_.tokenizer()));
  const absl::Duration timeout = std::min(resolved.timeout, coordinator_.config().max_timeout);
  resolved.start.deadline = std::min(arrived_ + timeout, absl::FromChrono(context_.deadline()));
  request_id_ = coordinator_.NewRequestId();
  resolved.start.request_id = request_id_;
  seed_ = resolved.start.sampling.seed;
  prompt_tokens_ = static_cast<int64_t>(resolved.start.prompt.size());
  coordinator_.metrics().PromptRead(prompt_tokens_);
  auto flow = std::make_shared<RequestFlow>(std::move(resolved.start), std::move(resolved.stops),
                                            coordinator_.SettingsFor(model_), coordinator_.router(),
                                            coordinator_.tokenizer(), *this);
  {
    const std::lock_guard lock(mutex_);
    if (cancelled_) {
      return absl::CancelledError("the client is gone");
    }
    flow_ = flow;
  }
  coordinator_.Watch(flow);
  flow->Start();  // may already end it, and with it this object
  return absl::OkStatus();
}

double GenerateReactor::SecondsSinceArrival() const {
  return std::max(0.0, absl::ToDoubleSeconds(absl::Now() - arrived_));
}

void GenerateReactor::Refuse(const absl::Status& status) {
  if (!counted_.exchange(true)) {
    const bool deadline_passed = absl::Now() >= absl::FromChrono(context_.deadline());
    coordinator_.metrics().GenerateFailed(status, ReasonOf(status), OriginOf(status), deadline_passed);
    coordinator_.metrics().CallEnded(Method::kGenerate, status.code(), SecondsSinceArrival());
    LogEnd(status.code(), ReasonOf(status));
  }
  outbox_.Abort(ToGrpcStatus(status, kCoordinatorOrigin));
}

void GenerateReactor::OnCancel() {
  std::shared_ptr<RequestFlow> flow;
  {
    const std::lock_guard lock(mutex_);
    cancelled_ = true;
    flow = flow_;
  }
  if (flow != nullptr) {
    flow->Cancel(absl::CancelledError("the client is gone"));
  }
}

void GenerateReactor::OnDone() {
  if (admitted_) {
    coordinator_.admission().Leave();
  }
  delete this;
}

// Ids, counts and times. A status's message may quote the request, so it is not there.
void GenerateReactor::LogEnd(absl::StatusCode code, const std::string& reason) {
  const std::optional<int64_t> left_out = coordinator_.log_limit().Allow();
  if (!left_out.has_value()) {
    return;
  }
  LogLine line(code == absl::StatusCode::kInternal ? LogLevel::kError : LogLevel::kInfo, "request");
  line.Add("id", request_id_).Add("client_id", request_.client_request_id());
  line.Add("code", absl::StatusCodeToString(code)).Add("reason", reason);
  line.Add("prompt_tokens", prompt_tokens_).Add("output_tokens", sent_tokens_);
  line.Add("seconds", SecondsSinceArrival());
  if (*left_out > 0) {
    line.Add("left_out", *left_out);
  }
  line.Write();
}

void GenerateReactor::Count(size_t tokens) {
  if (tokens == 0) {
    return;
  }
  const absl::Time now = absl::Now();
  const auto count = static_cast<int64_t>(tokens);
  if (last_tokens_ == absl::InfinitePast()) {
    coordinator_.metrics().FirstTokens(SecondsSinceArrival(), count);
  } else {
    coordinator_.metrics().MoreTokens(std::max(0.0, absl::ToDoubleSeconds(now - last_tokens_)), count);
  }
  last_tokens_ = now;
  sent_tokens_ += count;
}

void GenerateReactor::OnChunk(std::string text, std::vector<TokenId> tokens) {
  Count(tokens.size());
  v1::GenerateResponse message;
  message.mutable_chunk()->set_text(std::move(text));
  EncodeTokens(tokens, *message.mutable_chunk()->mutable_token_ids());
  if (!outbox_.PushResult(std::move(message))) {
    std::shared_ptr<RequestFlow> flow;
    {
      const std::lock_guard lock(mutex_);
      flow = flow_;
    }
    flow->Cancel(ErrorWithReason(
        absl::StatusCode::kResourceExhausted, reason::kSlowReader,
        absl::StrCat("unsent output exceeds max_unsent_bytes=", coordinator_.config().max_unsent_bytes,
                     ", expected a faster reader")));
  }
}

void GenerateReactor::OnFinish(const Answer& answer) {
  v1::GenerateResponse message;
  v1::GenerateFinal& final = *message.mutable_final();
  final.set_finish_reason(EncodeFinish(answer.finish));
  final.set_stop_string(answer.stop_string);
  final.set_seed(seed_);
  final.set_system_fingerprint(coordinator_.SystemFingerprint(model_));
  v1::Usage& usage = *final.mutable_usage();
  usage.set_prompt_tokens(prompt_tokens_);
  usage.set_completion_tokens(answer.completion_tokens);
  usage.set_drafted_tokens(answer.verified_nodes + answer.cut_nodes);
  usage.set_verified_tokens(answer.verified_nodes);
  usage.set_accepted_tokens(answer.accepted_nodes);
  final.set_rounds(answer.rounds);
  final.mutable_accepted_lengths()->Add(answer.accepted_lengths.begin(), answer.accepted_lengths.end());
  final.set_verified_nodes(answer.verified_nodes);
  final.set_cut_nodes(answer.cut_nodes);
  final.set_fallbacks(answer.fallbacks);
  v1::RequestSeconds& seconds = *final.mutable_seconds();
  seconds.set_queue(answer.seconds.queue);
  seconds.set_prefill(answer.seconds.prefill);
  seconds.set_draft(answer.seconds.draft);
  seconds.set_verify(answer.seconds.verify);
  seconds.set_wire(answer.seconds.wire);
  seconds.set_total(absl::ToDoubleSeconds(absl::Now() - arrived_));
  final.set_request_id(request_id_);
  if (!outbox_.PushResult(std::move(message))) {
    Refuse(ErrorWithReason(absl::StatusCode::kResourceExhausted, reason::kSlowReader,
                           "the answer's end exceeds max_unsent_bytes, expected a faster reader"));
    return;
  }
  if (!counted_.exchange(true)) {
    coordinator_.metrics().Answered(answer.seconds.queue, answer.verified_nodes, answer.accepted_nodes);
    coordinator_.metrics().CallEnded(Method::kGenerate, absl::StatusCode::kOk, SecondsSinceArrival());
    LogEnd(absl::StatusCode::kOk, "");
  }
  outbox_.Close(grpc::Status::OK);
}

void GenerateReactor::OnError(const PathEnd& error) {
  absl::Status status = error.status;
  if (ReasonOf(status).empty() && !error.reason.empty()) {
    status = WithReason(status, error.reason);
  }
  if (OriginOf(status).empty() && !error.origin.empty()) {
    status = WithOrigin(status, error.origin);
  }
  if (status.code() == absl::StatusCode::kUnavailable && !RetryDelayOf(status).has_value()) {
    status = WithRetryDelay(status, std::chrono::milliseconds(1000));
  }
  Refuse(status);
}

}  // namespace arborist::coordinator
