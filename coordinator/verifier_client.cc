#include "coordinator/verifier_client.h"

#include <algorithm>
#include <mutex>
#include <utility>

#include "common/rpc/channel.h"
#include "common/rpc/status_bridge.h"
#include "common/rpc/tree_codec.h"
#include "coordinator/sequence_codec.h"

namespace arborist::coordinator {
namespace {

// Open, then, when the prompt is read, one Decode for all that is left; with AUTO none if drafting pays by
// then, and it ends when drafting pays. A write starts only after the one before it completed: here from
// OnWriteDone or OnReadDone, whichever is later.
class DecodeCall : public grpc::ClientBidiReactor<v1::VerifyRequest, v1::VerifyResponse>, public PathCall {
 public:
  DecodeCall(const PathStart& start, std::shared_ptr<PathListener> listener)
      : automatic_(start.mode == Mode::kAuto), listener_(std::move(listener)) {
    EncodeSequence(start, *open_.mutable_open()->mutable_sequence());
    open_.mutable_open()->set_drafter_projection_hash(start.drafter_projection_hash);
    v1::Decode& decode = *decode_.mutable_decode();
    decode.set_round(1);
    decode.set_max_tokens(start.sampling.max_tokens - static_cast<int32_t>(start.output_so_far.size()));
    decode.set_until_drafting_pays(automatic_);
    context_.set_deadline(absl::ToChronoTime(start.deadline + kDeadlineGrace));
  }

  // The call keeps itself alive until OnDone.
  void Start(v1::VerifierService::Stub& stub, std::shared_ptr<DecodeCall> self) {
    self_ = std::move(self);
    last_event_ = absl::Now();
    stub.async()->Verify(&context_, this);
    StartWrite(&open_);
    StartRead(&response_);
    StartCall();
  }

  void Cancel() override { context_.TryCancel(); }

  void OnWriteDone(bool ok) override {
    const std::lock_guard lock(mutex_);
    writing_ = false;
    v1::VerifyRequest().Swap(&open_);  // its prompt may be long, and it is written
    if (ok) {
      WriteNext();
    }
  }

  void OnReadDone(bool ok) override {
    if (!ok) {
      return;
    }
    if (response_.has_committed()) {
      Relay(response_.committed());
    } else if (response_.has_prompt_log_probs()) {
      listener_->OnPromptScores(DecodePromptScores(response_.prompt_log_probs()));
    } else {
      if (response_.has_progress()) {
        Note(response_.progress());
      }
      listener_->OnProgress();
    }
    StartRead(&response_);
  }

  void OnDone(const grpc::Status& status) override {
    listener_->OnEnd(DecodeEnd(status));
    listener_.reset();  // the flow holds this call, and the listener the flow
    self_.reset();
  }

 private:
  // Under mutex_.
  void WriteNext() {
    if (writing_) {
      return;
    }
    if (ready_ && !decode_sent_) {
      decode_sent_ = writing_ = true;
      StartWrite(&decode_);
    } else if (finished_ && !half_closed_) {
      half_closed_ = true;
      StartWritesDone();
    }
  }

  // Prefill is what passes between the first word of it and readiness; before that the sequence is queued.
  void Note(const v1::Progress& progress) {
    const v1::ProgressState state = progress.state();
    const absl::Time now = absl::Now();
    const double passed = absl::ToDoubleSeconds(now - last_event_);
    if (state == v1::PROGRESS_STATE_WAITING && !told_ready_) {
      (prefilling_ ? pending_.prefill : pending_.queue) += passed;
      last_event_ = now;
      told_ready_ = true;
      if (automatic_ && progress.next_budget() > 0) {
        listener_->OnDraftingPays();
        return;
      }
      const std::lock_guard lock(mutex_);
      ready_ = true;
      WriteNext();
    } else if (state == v1::PROGRESS_STATE_PREFILL && !prefilling_ && !told_ready_) {
      pending_.queue += passed;
      last_event_ = now;
      prefilling_ = true;
    }
  }

  void Relay(const v1::Committed& committed) {
    const absl::Time now = absl::Now();
    TokenRun run;
    run.epoch = committed.epoch();
    run.first_position = committed.first_position();
    run.tokens = DecodeTokens(committed.token_ids());
    run.log_probs.assign(committed.log_probs().begin(), committed.log_probs().end());
    run.top_log_probs = DecodeTopLogProbs(committed.top_log_probs());
    run.verified_nodes = committed.verified_nodes();
    run.cut_nodes = committed.cut_nodes();
    run.finish = DecodeFinish(committed.finish_reason());
    run.seconds = std::exchange(pending_, {});
    run.seconds.queue += committed.queue_seconds();
    run.seconds.verify = committed.verify_seconds();
    run.seconds.wire = std::max(0.0, absl::ToDoubleSeconds(now - last_event_) - committed.queue_seconds() -
                                         committed.verify_seconds());
    last_event_ = now;
    const bool finished = run.finish != FinishReason::kNone;
    listener_->OnRun(std::move(run));
    if (finished) {
      const std::lock_guard lock(mutex_);
      finished_ = true;
      WriteNext();
    } else if (automatic_ && committed.last()) {
      listener_->OnDraftingPays();
    }
  }

  const bool automatic_;
  grpc::ClientContext context_;
  v1::VerifyRequest open_;
  v1::VerifyRequest decode_;
  v1::VerifyResponse response_;
  std::shared_ptr<PathListener> listener_;
  std::shared_ptr<DecodeCall> self_;

  // Of the reading side, which is one reaction at a time.
  absl::Time last_event_;
  PhaseSeconds pending_;
  bool prefilling_ = false;
  bool told_ready_ = false;

  std::mutex mutex_;     // guards what follows
  bool writing_ = true;  // Open, from the start
  bool ready_ = false;
  bool decode_sent_ = false;
  bool finished_ = false;
  bool half_closed_ = false;
};

}  // namespace

GrpcVerifierClient::GrpcVerifierClient(std::string address, int max_message_bytes)
    : address_(std::move(address)),
      stub_(v1::VerifierService::NewStub(
          CreateRpcChannel(address_, {.max_message_bytes = max_message_bytes}))) {}

absl::StatusOr<VerifierFacts> GrpcVerifierClient::GetInfo(absl::Duration timeout) {
  grpc::ClientContext context;
  context.set_deadline(absl::ToChronoTime(absl::Now() + timeout));
  v1::VerifierServiceGetInfoResponse response;
  const grpc::Status status = stub_->GetInfo(&context, v1::VerifierServiceGetInfoRequest(), &response);
  if (!status.ok()) {
    return FromGrpcStatus(status);
  }
  return VerifierFacts{.protocol_version = response.protocol_version(),
                       .fingerprint = response.fingerprint(),
                       .projection_hash = response.projection_hash(),
                       .model_name = response.model_name(),
                       .vocabulary_size = response.vocabulary_size(),
                       .context_length = response.context_length(),
                       .max_tree_nodes = response.max_tree_nodes()};
}

std::shared_ptr<PathCall> GrpcVerifierClient::Decode(const PathStart& start,
                                                     std::shared_ptr<PathListener> listener) {
  auto call = std::make_shared<DecodeCall>(start, std::move(listener));
  call->Start(*stub_, call);
  return call;
}

}  // namespace arborist::coordinator
