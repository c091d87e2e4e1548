#include "drafter/grpc_verifier_stream.h"

#include <cstring>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/rpc/protocol.h"
#include "common/rpc/status_bridge.h"
#include "common/rpc/tree_codec.h"
#include "drafter/round_rules.h"

namespace arborist::drafter {
namespace {

constexpr size_t kMaxUnreadEvents = 8;

FeatureRows DecodeFeatures(const v1::Features& message) {
  FeatureRows features;
  features.first_position = message.first_position();
  features.rows = message.row_count();
  features.values.resize(message.rows().size() / sizeof(BFloat16));
  std::memcpy(features.values.data(), message.rows().data(), features.values.size() * sizeof(BFloat16));
  return features;
}

FinishReason DecodeFinishReason(v1::FinishReason reason) {
  switch (reason) {
    case v1::FINISH_REASON_STOP_ID:
      return FinishReason::kStopId;
    case v1::FINISH_REASON_MAX_TOKENS:
      return FinishReason::kMaxTokens;
    case v1::FINISH_REASON_CONTEXT_LIMIT:
      return FinishReason::kContextLimit;
    case v1::FINISH_REASON_CONSTRAINT:
      return FinishReason::kConstraint;
    default:
      return FinishReason::kNone;
  }
}

std::vector<TopLogProbs> DecodeTopLogProbs(const v1::Committed& message) {
  std::vector<TopLogProbs> lists(static_cast<size_t>(message.top_log_probs_size()));
  for (int i = 0; i < message.top_log_probs_size(); ++i) {
    for (const v1::TokenLogProb& one : message.top_log_probs(i).tokens()) {
      lists[i].push_back({.token = TokenId{one.token_id()}, .log_prob = one.log_prob()});
    }
  }
  return lists;
}

PromptLogProbs DecodePromptLogProbs(const v1::PromptLogProbs& message) {
  return {.first_position = message.first_position(),
          .log_probs = {message.log_probs().begin(), message.log_probs().end()}};
}

CommittedTokens DecodeCommitted(const v1::Committed& message) {
  return {.epoch = message.epoch(),
          .round = message.round(),
          .last = message.last(),
          .first_position = message.first_position(),
          .tokens = DecodeTokens(message.token_ids()),
          .log_probs = {message.log_probs().begin(), message.log_probs().end()},
          .top_log_probs = DecodeTopLogProbs(message),
          .verified_nodes = message.verified_nodes(),
          .cut_nodes = message.cut_nodes(),
          .finish_reason = DecodeFinishReason(message.finish_reason()),
          .next_budget = message.next_budget(),
          .queue_seconds = message.queue_seconds(),
          .verify_seconds = message.verify_seconds(),
          .features = message.has_features() ? DecodeFeatures(message.features()) : FeatureRows()};
}

VerifierState DecodeState(v1::ProgressState state) {
  switch (state) {
    case v1::PROGRESS_STATE_PREFILL:
      return VerifierState::kPrefill;
    case v1::PROGRESS_STATE_WAITING:
      return VerifierState::kWaiting;
    case v1::PROGRESS_STATE_VERIFY:
      return VerifierState::kVerify;
    default:
      return VerifierState::kQueued;
  }
}

VerifierProgress DecodeProgress(const v1::Progress& message) {
  VerifierProgress progress{.state = DecodeState(message.state()),
                            .prompt_tokens_done = message.prompt_tokens_done()};
  if (message.has_next_budget()) {
    progress.next_budget = message.next_budget();
  }
  return progress;
}

}  // namespace

GrpcVerifierStream::GrpcVerifierStream(v1::VerifierService::Stub& stub, const v1::VerifyRequest& open,
                                       std::chrono::system_clock::time_point deadline,
                                       std::chrono::milliseconds peer_silence, SpinWait& spin)
    : peer_silence_(peer_silence), spin_(spin) {
  spin_.Join();
  context_.set_deadline(deadline);
  stub.async()->Verify(&context_, this);
  AddHold();  // until reading ends: reads and writes start outside of reactions
  std::lock_guard lock(mutex_);
  reading_ = true;
  StartRead(&incoming_);
  unsent_.push_back(open);
  Pump();
  StartCall();
}

GrpcVerifierStream::~GrpcVerifierStream() {
  spin_.Leave();
  context_.TryCancel();
  std::unique_lock lock(mutex_);
  while (!done_.has_value()) {
    events_.clear();
    ResumeReading();
    changed_.wait(lock);
  }
}

void GrpcVerifierStream::SendTree(int64_t round, const TokenTree& tree, double draft_seconds) {
  v1::VerifyRequest request;
  request.mutable_tree()->set_round(round);
  request.mutable_tree()->set_draft_seconds(draft_seconds);
  EncodeTree(tree, *request.mutable_tree()->mutable_tree());
  Send(std::move(request));
}

void GrpcVerifierStream::SendDecode(int64_t round, int max_tokens, bool until_drafting_pays) {
  v1::VerifyRequest request;
  request.mutable_decode()->set_round(round);
  request.mutable_decode()->set_max_tokens(max_tokens);
  request.mutable_decode()->set_until_drafting_pays(until_drafting_pays);
  Send(std::move(request));
}

void GrpcVerifierStream::Stop() {
  v1::VerifyRequest request;
  request.mutable_stop();
  Send(std::move(request));
  // The sequence has finished, so the end is near; a verifier that goes silent now changes nothing.
  while (Next().ok()) {
  }
}

void GrpcVerifierStream::Cancel() { context_.TryCancel(); }

void GrpcVerifierStream::Send(v1::VerifyRequest request) {
  std::lock_guard lock(mutex_);
  unsent_.push_back(std::move(request));
  Pump();
}

void GrpcVerifierStream::Pump() {
  if (writing_ || ended_ || unsent_.empty()) {
    return;
  }
  outgoing_ = std::move(unsent_.front());
  unsent_.pop_front();
  writing_ = true;
  StartWrite(&outgoing_);
}

void GrpcVerifierStream::ResumeReading() {
  if (!reading_ && !ended_ && events_.size() < kMaxUnreadEvents) {
    reading_ = true;
    StartRead(&incoming_);
  }
}

absl::StatusOr<VerifierEvent> GrpcVerifierStream::Next() {
  std::unique_lock lock(mutex_);
  if (events_.empty() && !done_.has_value()) {
    const uint64_t before = heard_.load(std::memory_order_relaxed);
    lock.unlock();
    spin_.Until([&] { return heard_.load(std::memory_order_relaxed) != before; });
    lock.lock();
  }
  const bool heard =
      changed_.wait_for(lock, peer_silence_, [this] { return !events_.empty() || done_.has_value(); });
  if (!heard) {
    context_.TryCancel();
    return WithOrigin(
        ErrorWithReason(absl::StatusCode::kUnavailable, reason::kPeerSilent,
                        absl::StrCat("the verifier said nothing for ", peer_silence_.count(), " ms")),
        kVerifierOrigin);
  }
  if (events_.empty()) {
    return done_->ok() ? VerifierFault("the stream ended before the sequence did") : *done_;
  }
  const bool was_full = events_.size() >= kMaxUnreadEvents;
  VerifierEvent event = std::move(events_.front());
  events_.pop_front();
  if (was_full) {
    ResumeReading();
  }
  return event;
}

void GrpcVerifierStream::OnReadDone(bool ok) {
  std::unique_lock lock(mutex_);
  reading_ = false;
  if (!ok) {
    ended_ = true;
    lock.unlock();
    RemoveHold();
    return;
  }
  VerifierEvent event{.received = Clock::now(), .message = {}};
  if (incoming_.has_committed()) {
    event.message = DecodeCommitted(incoming_.committed());
  } else if (incoming_.has_features()) {
    event.message = DecodeFeatures(incoming_.features());
  } else if (incoming_.has_prompt_log_probs()) {
    event.message = DecodePromptLogProbs(incoming_.prompt_log_probs());
  } else {
    event.message = DecodeProgress(incoming_.progress());
    // Signs of life of one state replace each other, so a long draft does not fill the queue with them.
    if (!events_.empty() && std::holds_alternative<VerifierProgress>(events_.back().message)) {
      events_.pop_back();
    }
  }
  events_.push_back(std::move(event));
  heard_.fetch_add(1, std::memory_order_relaxed);
  // The loop's thread goes on before the next read starts, and wakes without meeting the lock. gRPC keeps
  // this object until we return.
  lock.unlock();
  changed_.notify_all();
  lock.lock();
  ResumeReading();
}

void GrpcVerifierStream::OnWriteDone(bool) {
  std::lock_guard lock(mutex_);
  writing_ = false;
  Pump();
}

void GrpcVerifierStream::OnDone(const grpc::Status& status) {
  absl::Status result = FromGrpcStatus(status);
  if (!result.ok() && OriginOf(result).empty()) {
    // No details: the connection failed, or our own side ended the call.
    if (result.code() == absl::StatusCode::kUnavailable) {
      result = WithReason(result, reason::kVerifierUnreachable);
    }
    result = WithOrigin(result, kVerifierOrigin);
  }
  std::lock_guard lock(mutex_);
  done_ = std::move(result);
  heard_.fetch_add(1, std::memory_order_relaxed);
  changed_.notify_all();
}

}  // namespace arborist::drafter
