#include "coordinator/answer_codec.h"

#include <chrono>
#include <utility>

#include "common/rpc/status_bridge.h"
#include "common/rpc/tree_codec.h"
#include "coordinator/sequence_codec.h"

namespace arborist::coordinator {

v1::GenerateResponse ChunkMessage(uint32_t sample_index, AnswerChunk chunk) {
  v1::GenerateResponse message;
  message.set_sample_index(sample_index);
  v1::GenerateChunk& out = *message.mutable_chunk();
  out.set_text(std::move(chunk.text));
  EncodeTokens(chunk.tokens, *out.mutable_token_ids());
  out.mutable_log_probs()->Add(chunk.log_probs.begin(), chunk.log_probs.end());
  EncodeTopLogProbs(chunk.top_log_probs, *out.mutable_top_log_probs());
  out.mutable_prompt_log_probs()->Add(chunk.prompt_log_probs.begin(), chunk.prompt_log_probs.end());
  return message;
}

v1::GenerateResponse EchoMessage(uint32_t sample_index, PromptEcho::Piece piece) {
  v1::GenerateResponse message;
  message.set_sample_index(sample_index);
  message.mutable_chunk()->set_is_prompt(true);
  message.mutable_chunk()->set_text(std::move(piece.text));
  EncodeTokens(piece.tokens, *message.mutable_chunk()->mutable_token_ids());
  return message;
}

v1::GenerateResponse FinalMessage(uint32_t sample_index, const RequestFacts& facts, const Answer& answer,
                                  double total_seconds) {
  v1::GenerateResponse message;
  message.set_sample_index(sample_index);
  v1::GenerateFinal& final = *message.mutable_final();
  final.set_finish_reason(EncodeFinish(answer.finish));
  final.set_stop_string(answer.stop_string);
  final.set_seed(facts.seed);
  final.set_system_fingerprint(facts.system_fingerprint);
  v1::Usage& usage = *final.mutable_usage();
  usage.set_prompt_tokens(facts.prompt_tokens);
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
  seconds.set_total(total_seconds);
  final.set_request_id(facts.request_id);
  return message;
}

bool MergeChunks(v1::GenerateResponse& waiting, v1::GenerateResponse& next) {
  if (waiting.sample_index() != next.sample_index() || !waiting.has_chunk() || !next.has_chunk()) {
    return false;
  }
  v1::GenerateChunk& chunk = *waiting.mutable_chunk();
  chunk.mutable_text()->append(next.chunk().text());
  chunk.mutable_token_ids()->MergeFrom(next.chunk().token_ids());
  chunk.mutable_log_probs()->MergeFrom(next.chunk().log_probs());
  chunk.mutable_top_log_probs()->MergeFrom(next.chunk().top_log_probs());
  chunk.mutable_prompt_log_probs()->MergeFrom(next.chunk().prompt_log_probs());
  return true;
}

absl::Status StatusFor(const PathEnd& error) {
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
  return WithoutFieldPrefix(WithoutFieldPrefix(status, "sequence."), "sampling.");
}

}  // namespace arborist::coordinator
