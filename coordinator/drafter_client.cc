#include "coordinator/drafter_client.h"

#include <utility>

#include "common/rpc/channel.h"
#include "common/rpc/status_bridge.h"
#include "common/rpc/tree_codec.h"
#include "coordinator/sequence_codec.h"

namespace arborist::coordinator {
namespace {

TokenRun DecodeRun(const v1::Tokens& tokens) {
  TokenRun run;
  run.epoch = tokens.epoch();
  run.first_position = tokens.first_position();
  run.tokens = DecodeTokens(tokens.token_ids());
  run.log_probs.assign(tokens.log_probs().begin(), tokens.log_probs().end());
  run.top_log_probs = DecodeTopLogProbs(tokens.top_log_probs());
  run.accepted = tokens.accepted();
  run.verified_nodes = tokens.verified_nodes();
  run.cut_nodes = tokens.cut_nodes();
  const v1::RoundSeconds& seconds = tokens.seconds();
  run.seconds = {.queue = seconds.queue(),
                 .prefill = seconds.prefill(),
                 .draft = seconds.draft(),
                 .verify = seconds.verify(),
                 .wire = seconds.wire()};
  run.finish = DecodeFinish(tokens.finish_reason());
  return run;
}

class SpeculateCall : public grpc::ClientReadReactor<v1::SpeculateResponse>, public PathCall {
 public:
  SpeculateCall(const PathStart& start, std::shared_ptr<PathListener> listener)
      : listener_(std::move(listener)) {
    EncodeSequence(start, *request_.mutable_sequence());
    context_.set_deadline(absl::ToChronoTime(start.deadline + kDeadlineGrace));
  }

  // The call keeps itself alive until OnDone.
  void Start(v1::DrafterService::Stub& stub, std::shared_ptr<SpeculateCall> self) {
    self_ = std::move(self);
    stub.async()->Speculate(&context_, &request_, this);
    StartRead(&response_);
    StartCall();
  }

  void Cancel() override { context_.TryCancel(); }

  void OnReadDone(bool ok) override {
    v1::SpeculateRequest().Swap(
        &request_);  // its prompt may be long, and it was sent before anything came back
    if (!ok) {
      return;
    }
    if (response_.has_tokens()) {
      listener_->OnRun(DecodeRun(response_.tokens()));
    } else if (response_.has_prompt_log_probs()) {
      listener_->OnPromptScores(DecodePromptScores(response_.prompt_log_probs()));
    } else {
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
  grpc::ClientContext context_;
  v1::SpeculateRequest request_;
  v1::SpeculateResponse response_;
  std::shared_ptr<PathListener> listener_;
  std::shared_ptr<SpeculateCall> self_;
};

}  // namespace

GrpcDrafterClient::GrpcDrafterClient(std::string address, int max_message_bytes)
    : address_(std::move(address)),
      stub_(
          v1::DrafterService::NewStub(CreateRpcChannel(address_, {.max_message_bytes = max_message_bytes}))) {
}

absl::StatusOr<DrafterFacts> GrpcDrafterClient::GetInfo(absl::Duration timeout) {
  grpc::ClientContext context;
  context.set_deadline(absl::ToChronoTime(absl::Now() + timeout));
  v1::DrafterServiceGetInfoResponse response;
  const grpc::Status status = stub_->GetInfo(&context, v1::DrafterServiceGetInfoRequest(), &response);
  if (!status.ok()) {
    return FromGrpcStatus(status);
  }
  return DrafterFacts{.protocol_version = response.protocol_version(),
                      .proposer = response.proposer(),
                      .projection_hash = response.projection_hash(),
                      .verifier_fingerprint = response.verifier_fingerprint(),
                      .ready = response.ready()};
}

std::shared_ptr<PathCall> GrpcDrafterClient::Speculate(const PathStart& start,
                                                       std::shared_ptr<PathListener> listener) {
  auto call = std::make_shared<SpeculateCall>(start, std::move(listener));
  call->Start(*stub_, call);
  return call;
}

}  // namespace arborist::coordinator
