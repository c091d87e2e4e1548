#include "drafter/testing/fake_verifier_service.h"

#include <chrono>
#include <thread>

#include "common/rpc/protocol.h"
#include "common/rpc/status_bridge.h"
#include "common/rpc/tree_codec.h"

namespace arborist::drafter::testing {

struct FakeVerifierService::Run {
  grpc::ServerContext* context;
  grpc::ServerReaderWriter<v1::VerifyResponse, v1::VerifyRequest>* stream;
  v1::Sequence sequence;
  int32_t last_token = 0;
  int32_t position = 0;  // of the next token
  int32_t output = 0;
  bool finished = false;
  bool features = false;
};

grpc::Status FakeVerifierService::GetInfo(grpc::ServerContext*, const v1::VerifierServiceGetInfoRequest*,
                                          v1::VerifierServiceGetInfoResponse* response) {
  if (loading) {
    return ToGrpcStatus(absl::UnavailableError("loading"), kVerifierOrigin);
  }
  response->set_protocol_version(protocol_version);
  response->set_fingerprint("f1");
  response->set_projection_hash(wrong_projection ? "p2" : "p1");
  response->set_vocabulary_size(5000);
  response->set_max_tree_nodes(31);
  return grpc::Status::OK;
}

std::vector<v1::VerifyRequest> FakeVerifierService::requests() {
  std::lock_guard lock(mutex_);
  return requests_;
}

grpc::Status FakeVerifierService::Verify(
    grpc::ServerContext* context, grpc::ServerReaderWriter<v1::VerifyResponse, v1::VerifyRequest>* stream) {
  Run run{.context = context, .stream = stream, .sequence = {}};
  v1::VerifyRequest request;
  while (stream->Read(&request)) {
    {
      std::lock_guard lock(mutex_);
      requests_.push_back(request);
    }
    const grpc::Status status = Answer(request, run);
    if (!status.ok() || request.has_stop() || run.finished) {
      return status;
    }
  }
  return grpc::Status::OK;
}

grpc::Status FakeVerifierService::Answer(const v1::VerifyRequest& request, Run& run) {
  v1::VerifyResponse response;
  if (request.has_open()) {
    run.sequence = request.open().sequence();
    run.position = run.sequence.prompt_size() + run.sequence.output_so_far_size();
    run.output = run.sequence.output_so_far_size();
    run.last_token =
        run.output > 0 ? *run.sequence.output_so_far().rbegin() : *run.sequence.prompt().rbegin();
    run.features = !request.open().projection_hash().empty();
    if (run.features && feature_rows_on_attach > 0) {
      const int rows = feature_rows_on_attach;
      response.mutable_features()->set_first_position(run.position - 1 - rows);
      response.mutable_features()->set_row_count(rows);
      response.mutable_features()->set_rows(std::string(rows * 8, '\0'));
      run.stream->Write(response);
    }
    if (run.sequence.sampling().prompt_log_probs()) {
      for (int position = 1; position < run.sequence.prompt_size(); ++position) {
        response.mutable_prompt_log_probs()->set_first_position(position);
        response.mutable_prompt_log_probs()->clear_log_probs();
        response.mutable_prompt_log_probs()->add_log_probs(static_cast<float>(-position));
        run.stream->Write(response);
      }
    }
    response.mutable_progress()->set_state(v1::PROGRESS_STATE_WAITING);
    if (first_budget >= 0) {
      response.mutable_progress()->set_next_budget(first_budget);
    }
    run.stream->Write(response);
    if (run.features && feature_rows_on_attach == 0) {
      // Longer than a drafter waits for features; the second sign of life wakes it.
      std::this_thread::sleep_for(std::chrono::milliseconds(200));
      run.stream->Write(response);
    }
    return grpc::Status::OK;
  }
  if (request.has_stop()) {
    return grpc::Status::OK;
  }
  const int64_t round = request.has_tree() ? request.tree().round() : request.decode().round();
  if (fails_in_round == round) {
    return ToGrpcStatus(failure, kVerifierOrigin);
  }
  if (ends_in_round == round) {
    run.finished = true;
    return grpc::Status::OK;
  }
  while (silent_in_round == round && !run.context->IsCancelled()) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  const TokenTree tree = DecodeTree(request.tree().tree());
  if (request.has_tree()) {
    const absl::Status valid = ValidateTokenTree(tree, TokenId{run.last_token}, {.vocab_size = 1000});
    if (!valid.ok()) {
      return ToGrpcStatus(WithReason(valid, reason::kBadTree), kVerifierOrigin);
    }
  }
  const int messages = request.has_tree() ? 1 : request.decode().max_tokens();
  bool ended = false;
  for (int i = 0; i < messages && !run.finished && !ended; ++i) {
    v1::Committed& committed = *response.mutable_committed();
    committed.Clear();
    committed.set_epoch(run.sequence.epoch());
    committed.set_round(wrong_round_in == round ? round + 1 : round);
    committed.set_first_position(run.position);
    committed.set_verified_nodes(std::max(tree.nodes() - 1, 0));
    committed.set_next_budget(next_budget);
    committed.set_verify_seconds(1e-6);
    const int32_t root_position = run.position - 1;
    int32_t at = 0;
    bool more = true;
    while (more && !run.finished) {
      const int32_t token = (run.last_token + 1) % 1000;
      committed.add_token_ids(token);
      committed.add_log_probs(static_cast<float>(-run.position));
      for (int j = 0; j < run.sequence.sampling().top_log_probs(); ++j) {
        v1::TopLogProbs& list =
            j == 0 ? *committed.add_top_log_probs() : *committed.mutable_top_log_probs()->rbegin();
        v1::TokenLogProb& one = *list.add_tokens();
        one.set_token_id(token + j);
        one.set_log_prob(static_cast<float>(-j));
      }
      run.last_token = token;
      ++run.position;
      run.finished = ++run.output >= run.sequence.sampling().max_tokens();
      int32_t child = at + 1;
      while (child < tree.nodes() && (tree.parent[child] != at || Raw(tree.token[child]) != token)) {
        ++child;
      }
      more = child < tree.nodes();
      at = child;
    }
    if (run.position >= pays_from) {
      committed.set_next_budget(8);
      ended = request.decode().until_drafting_pays();
    }
    committed.set_last(i + 1 == messages || run.finished || ended);
    committed.set_finish_reason(run.finished ? finish_reason.load() : v1::FINISH_REASON_UNSPECIFIED);
    if (run.features) {
      committed.mutable_features()->set_first_position(root_position);
      committed.mutable_features()->set_row_count(committed.token_ids_size());
      committed.mutable_features()->set_rows(std::string(committed.token_ids_size() * 8, '\0'));
    }
    run.stream->Write(response);
  }
  return grpc::Status::OK;
}

}  // namespace arborist::drafter::testing
