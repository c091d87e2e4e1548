#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "arborist/v1/drafter.grpc.pb.h"
#include "arborist/v1/verifier.grpc.pb.h"
#include "common/rpc/protocol.h"
#include "common/rpc/status_bridge.h"

namespace arborist::coordinator::testing {

// Every sequence of a sample has the same right answer: the token at position p is TokenAt(p, sample).
inline int32_t TokenAt(int64_t position, uint32_t sample = 0) {
  return static_cast<int32_t>(40 + (position * 7 + sample * 11) % 60);
}
inline float LogProbAt(int64_t position) { return -0.5f - static_cast<float>(position % 8); }

// Fills in what a run or a round says of its tokens.
template <typename Message>
void AddToken(const v1::Sequence& sequence, int64_t position, Message& message) {
  message.add_token_ids(TokenAt(position, sequence.sample_index()));
  message.add_log_probs(LogProbAt(position));
  if (const int count = sequence.sampling().top_log_probs(); count > 0) {
    v1::TopLogProbs& list = *message.add_top_log_probs();
    for (int i = 0; i < count; ++i) {
      v1::TokenLogProb& token = *list.add_tokens();
      token.set_token_id(static_cast<int32_t>(position) + i);
      token.set_log_prob(LogProbAt(position) - static_cast<float>(i));
    }
  }
}

// Log-probabilities of a prompt, if they are asked for, a message for each three.
template <typename Response, typename Stream>
void WritePromptLogProbs(const v1::Sequence& sequence, Stream& stream) {
  const int owed = sequence.sampling().prompt_log_probs() ? sequence.prompt_size() : 0;
  for (int position = 1; position < owed; position += 3) {
    Response response;
    response.mutable_prompt_log_probs()->set_first_position(position);
    for (int i = position; i < std::min(position + 3, owed); ++i) {
      response.mutable_prompt_log_probs()->add_log_probs(LogProbAt(i));
    }
    stream.Write(response);
  }
}

// What a fake was asked for.
class SeenSequences {
 public:
  void Add(const v1::Sequence& sequence) {
    const std::lock_guard lock(mutex_);
    all_.push_back(sequence);
  }
  std::vector<v1::Sequence> all() const {
    const std::lock_guard lock(mutex_);
    return all_;
  }

 private:
  mutable std::mutex mutex_;
  std::vector<v1::Sequence> all_;
};

inline void Pause(int milliseconds) { std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds)); }

struct Running {
  explicit Running(std::atomic<int>& count) : count_(count) { ++count_; }
  ~Running() { --count_; }

 private:
  std::atomic<int>& count_;
};

// A verifier that obeys the stream rules and decodes plainly, a token every `token_ms`.
class FakeVerifierService : public v1::VerifierService::Service {
 public:
  std::string fingerprint = "print";
  int token_ms = 0;
  std::atomic<bool> full{false};    // refuses every sequence
  std::atomic<int> dies_after{-1};  // tokens, then the stream breaks
  std::atomic<int> opened{0};
  std::atomic<int> cancelled{0};
  std::atomic<int> running{0};
  std::atomic<int> refused_sample{-1};  // this one is, by a field
  std::vector<int> runs;                // tokens of its messages; of those that are not here: one
  SeenSequences seen;

  grpc::Status GetInfo(grpc::ServerContext*, const v1::VerifierServiceGetInfoRequest*,
                       v1::VerifierServiceGetInfoResponse* response) override {
    response->set_protocol_version(kProtocolVersion);
    response->set_fingerprint(fingerprint);
    response->set_model_name("fake");
    response->set_vocabulary_size(1024);
    response->set_context_length(500);
    response->set_max_tree_nodes(255);
    return grpc::Status::OK;
  }

  grpc::Status Verify(grpc::ServerContext* context,
                      grpc::ServerReaderWriter<v1::VerifyResponse, v1::VerifyRequest>* stream) override {
    const Running counted(running);
    v1::VerifyRequest request;
    if (!stream->Read(&request) || !request.has_open()) {
      return ToGrpcStatus(absl::FailedPreconditionError("no open"), kVerifierOrigin);
    }
    const v1::Sequence sequence = request.open().sequence();
    ++opened;
    seen.Add(sequence);
    if (static_cast<int>(sequence.sample_index()) == refused_sample) {
      return ToGrpcStatus(FieldError("sequence.sampling.regex", "(", "a group that ends"), kVerifierOrigin);
    }
    if (full) {
      return ToGrpcStatus(
          ErrorWithReason(absl::StatusCode::kResourceExhausted, reason::kQueueFull, "queue is full"),
          kVerifierOrigin);
    }
    v1::VerifyResponse response;
    response.mutable_progress()->set_state(v1::PROGRESS_STATE_PREFILL);
    stream->Write(response);
    Pause(5);
    WritePromptLogProbs<v1::VerifyResponse>(sequence, *stream);
    response.mutable_progress()->set_state(v1::PROGRESS_STATE_WAITING);
    stream->Write(response);
    if (!stream->Read(&request) || !request.has_decode()) {
      return ToGrpcStatus(absl::FailedPreconditionError("no decode"), kVerifierOrigin);
    }
    return Decode(context, sequence, request.decode(), stream);
  }

 private:
  grpc::Status Decode(grpc::ServerContext* context, const v1::Sequence& sequence, const v1::Decode& decode,
                      grpc::ServerReaderWriter<v1::VerifyResponse, v1::VerifyRequest>* stream) {
    const int already = sequence.output_so_far_size();
    for (int i = 0, message = 0; i < decode.max_tokens(); ++message) {
      Pause(token_ms);
      if (context->IsCancelled()) {
        ++cancelled;
        return grpc::Status::CANCELLED;
      }
      if (i == dies_after) {
        return grpc::Status(grpc::StatusCode::UNAVAILABLE, "socket closed");
      }
      v1::VerifyResponse response;
      v1::Committed& committed = *response.mutable_committed();
      committed.set_epoch(sequence.epoch());
      committed.set_round(decode.round());
      committed.set_first_position(sequence.prompt_size() + already + i);
      const int tokens = message < static_cast<int>(runs.size()) ? runs[message] : 1;
      for (const int end = std::min(i + tokens, decode.max_tokens()); i < end; ++i) {
        AddToken(sequence, sequence.prompt_size() + already + i, committed);
      }
      committed.set_verify_seconds(0.001);
      const bool last = already + i == sequence.sampling().max_tokens();
      committed.set_last(last);
      if (last) {
        committed.set_finish_reason(v1::FINISH_REASON_MAX_TOKENS);
      }
      stream->Write(response);
    }
    v1::VerifyRequest rest;
    while (stream->Read(&rest)) {
    }
    return grpc::Status::OK;
  }
};

// A drafter that gives three tokens a run, and can break on purpose.
class FakeDrafterService : public v1::DrafterService::Service {
 public:
  std::atomic<bool> ready{true};
  std::atomic<int> dies_after{-1};    // runs, then the stream breaks
  std::atomic<int> stalls_after{-1};  // runs, then silence until it is cancelled
  std::atomic<int> run_ms{0};
  std::atomic<int> started{0};
  std::atomic<int> cancelled{0};
  SeenSequences seen;

  grpc::Status GetInfo(grpc::ServerContext*, const v1::DrafterServiceGetInfoRequest*,
                       v1::DrafterServiceGetInfoResponse* response) override {
    response->set_protocol_version(kProtocolVersion);
    response->set_proposer("ngram");
    response->set_verifier_fingerprint("print");
    response->set_ready(ready);
    return grpc::Status::OK;
  }

  grpc::Status Speculate(grpc::ServerContext* context, const v1::SpeculateRequest* request,
                         grpc::ServerWriter<v1::SpeculateResponse>* writer) override {
    ++started;
    const v1::Sequence& sequence = request->sequence();
    seen.Add(sequence);
    WritePromptLogProbs<v1::SpeculateResponse>(sequence, *writer);
    const int limit = sequence.sampling().max_tokens();
    int done = 0;
    for (int run = 0; done < limit; ++run) {
      if (run == dies_after) {
        return grpc::Status(grpc::StatusCode::UNAVAILABLE, "socket closed");
      }
      while (run == stalls_after && !context->IsCancelled()) {
        Pause(5);
      }
      Pause(run_ms);
      if (context->IsCancelled()) {
        ++cancelled;
        return grpc::Status::CANCELLED;
      }
      v1::SpeculateResponse response;
      v1::Tokens& tokens = *response.mutable_tokens();
      tokens.set_epoch(sequence.epoch());
      tokens.set_first_position(sequence.prompt_size() + done);
      for (int i = 0; i < 3 && done < limit; ++i, ++done) {
        AddToken(sequence, sequence.prompt_size() + done, tokens);
      }
      tokens.set_accepted(tokens.token_ids_size() - 1);
      tokens.set_verified_nodes(sequence.tree_nodes());
      tokens.mutable_seconds()->set_draft(0.001);
      if (done == limit) {
        tokens.set_finish_reason(v1::FINISH_REASON_MAX_TOKENS);
      }
      writer->Write(response);
    }
    return grpc::Status::OK;
  }
};

}  // namespace arborist::coordinator::testing
