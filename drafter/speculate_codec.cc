#include "drafter/speculate_codec.h"

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/rpc/protocol.h"
#include "common/rpc/status_bridge.h"
#include "common/rpc/tree_codec.h"

namespace arborist::drafter {
namespace {

constexpr int kMaxMergedTokens = 64;

absl::StatusOr<SpeculationMode> DecodeMode(v1::SpeculationMode mode) {
  switch (mode) {
    case v1::SPECULATION_MODE_UNSPECIFIED:
    case v1::SPECULATION_MODE_AUTO:
      return SpeculationMode::kAuto;
    case v1::SPECULATION_MODE_TREE:
      return SpeculationMode::kTree;
    case v1::SPECULATION_MODE_CHAIN:
      return SpeculationMode::kChain;
    default:
      return FieldError("sequence.mode", absl::StrCat(static_cast<int>(mode)), "AUTO, TREE or CHAIN");
  }
}

v1::FinishReason EncodeFinishReason(FinishReason reason) {
  switch (reason) {
    case FinishReason::kNone:
      return v1::FINISH_REASON_UNSPECIFIED;
    case FinishReason::kStopId:
      return v1::FINISH_REASON_STOP_ID;
    case FinishReason::kMaxTokens:
      return v1::FINISH_REASON_MAX_TOKENS;
    case FinishReason::kContextLimit:
      return v1::FINISH_REASON_CONTEXT_LIMIT;
    case FinishReason::kConstraint:
      return v1::FINISH_REASON_CONSTRAINT;
  }
  return v1::FINISH_REASON_UNSPECIFIED;
}

void AddSeconds(const v1::RoundSeconds& more, v1::RoundSeconds& sum) {
  sum.set_queue(sum.queue() + more.queue());
  sum.set_prefill(sum.prefill() + more.prefill());
  sum.set_draft(sum.draft() + more.draft());
  sum.set_verify(sum.verify() + more.verify());
  sum.set_wire(sum.wire() + more.wire());
}

}  // namespace

std::string TokenField(size_t i, const v1::Sequence& sequence) {
  const size_t prompt = static_cast<size_t>(sequence.prompt_size());
  return i < prompt ? absl::StrCat("sequence.prompt[", i, "]")
                    : absl::StrCat("sequence.output_so_far[", i - prompt, "]");
}

absl::StatusOr<SpeculationRequest> DecodeSpeculate(const v1::SpeculateRequest& request, int max_tree_nodes) {
  if (!request.has_sequence()) {
    return FieldError("sequence", "unset", "a sequence");
  }
  const v1::Sequence& sequence = request.sequence();
  if (sequence.protocol_version() != kProtocolVersion) {
    return ErrorWithReason(absl::StatusCode::kFailedPrecondition, reason::kProtocolVersionMismatch,
                           absl::StrCat("sequence.protocol_version=", sequence.protocol_version(),
                                        ", expected ", kProtocolVersion));
  }
  if (sequence.request_id().empty()) {
    return FieldError("sequence.request_id", "", "1 to 128 bytes of printable ASCII");
  }
  if (sequence.epoch() < 1) {
    return FieldError("sequence.epoch", absl::StrCat(sequence.epoch()), "a value >= 1");
  }
  if (sequence.prompt().empty()) {
    return FieldError("sequence.prompt", "(0 tokens)", "at least 1 token");
  }
  if (!sequence.has_sampling()) {
    return FieldError("sequence.sampling", "unset", "resolved sampling");
  }
  const float temperature = sequence.sampling().temperature();
  if (!(temperature >= 0 && temperature <= 100)) {
    return FieldError("sequence.sampling.temperature", absl::StrCat(temperature),
                      "a finite value in [0, 100]");
  }
  if (sequence.tree_nodes() < 1 || sequence.tree_nodes() > max_tree_nodes) {
    return FieldError("sequence.tree_nodes", absl::StrCat(sequence.tree_nodes()),
                      absl::StrCat("a value in [1, ", max_tree_nodes, "]"));
  }
  SpeculationRequest result;
  ASSIGN_OR_RETURN(result.mode, DecodeMode(sequence.mode()));
  result.epoch = sequence.epoch();
  result.tokens = DecodeTokens(sequence.prompt());
  result.prompt_tokens = sequence.prompt_size();
  for (const int32_t id : sequence.output_so_far()) {
    result.tokens.push_back(TokenId{id});
  }
  for (size_t i = 0; i < result.tokens.size(); ++i) {
    if (Raw(result.tokens[i]) < 0) {
      return FieldError(TokenField(i, sequence), absl::StrCat(Raw(result.tokens[i])), "an id >= 0");
    }
  }
  result.tree_nodes = sequence.tree_nodes();
  result.temperature = temperature;
  result.seed = sequence.sampling().seed();
  result.sample_index = sequence.sample_index();
  return result;
}

v1::VerifyRequest EncodeOpen(const v1::Sequence& sequence, int32_t feature_window,
                             const std::string& projection_hash) {
  v1::VerifyRequest request;
  *request.mutable_open()->mutable_sequence() = sequence;
  request.mutable_open()->set_feature_window(feature_window);
  request.mutable_open()->set_projection_hash(projection_hash);
  return request;
}

v1::SpeculateResponse EncodeTokensMessage(const RoundTokens& tokens) {
  v1::SpeculateResponse response;
  v1::Tokens& message = *response.mutable_tokens();
  message.set_epoch(tokens.epoch);
  message.set_first_position(tokens.first_position);
  EncodeTokens(tokens.tokens, *message.mutable_token_ids());
  message.set_round(tokens.round);
  message.set_accepted(tokens.accepted);
  message.set_verified_nodes(tokens.verified_nodes);
  message.set_cut_nodes(tokens.cut_nodes);
  v1::RoundSeconds& seconds = *message.mutable_seconds();
  seconds.set_queue(tokens.seconds.queue);
  seconds.set_prefill(tokens.seconds.prefill);
  seconds.set_draft(tokens.seconds.draft);
  seconds.set_verify(tokens.seconds.verify);
  seconds.set_wire(tokens.seconds.wire);
  message.mutable_log_probs()->Add(tokens.log_probs.begin(), tokens.log_probs.end());
  for (const TopLogProbs& list : tokens.top_log_probs) {
    v1::TopLogProbs& entry = *message.add_top_log_probs();
    for (const TokenLogProb& one : list) {
      v1::TokenLogProb& token = *entry.add_tokens();
      token.set_token_id(Raw(one.token));
      token.set_log_prob(one.log_prob);
    }
  }
  message.set_finish_reason(EncodeFinishReason(tokens.finish_reason));
  return response;
}

v1::SpeculateResponse EncodePromptLogProbs(const PromptLogProbs& log_probs) {
  v1::SpeculateResponse response;
  v1::PromptLogProbs& message = *response.mutable_prompt_log_probs();
  message.set_first_position(log_probs.first_position);
  message.mutable_log_probs()->Add(log_probs.log_probs.begin(), log_probs.log_probs.end());
  return response;
}

v1::SpeculateResponse EncodeState(SpeculationState state, int prompt_tokens_done) {
  v1::SpeculateResponse response;
  v1::Progress& progress = *response.mutable_progress();
  progress.set_prompt_tokens_done(prompt_tokens_done);
  switch (state) {
    case SpeculationState::kQueued:
      progress.set_state(v1::PROGRESS_STATE_QUEUED);
      break;
    case SpeculationState::kPrefill:
      progress.set_state(v1::PROGRESS_STATE_PREFILL);
      break;
    case SpeculationState::kDraft:
      progress.set_state(v1::PROGRESS_STATE_DRAFT);
      break;
    case SpeculationState::kVerify:
    case SpeculationState::kStalled:
      progress.set_state(v1::PROGRESS_STATE_VERIFY);
      break;
  }
  return response;
}

bool MergePlainTokens(v1::SpeculateResponse& tail, v1::SpeculateResponse& next) {
  if (!tail.has_tokens() || !next.has_tokens()) {
    return false;
  }
  v1::Tokens& a = *tail.mutable_tokens();
  const v1::Tokens& b = next.tokens();
  // A round with a tree stays one message: its counts belong to it.
  const bool plain = a.verified_nodes() + a.cut_nodes() + b.verified_nodes() + b.cut_nodes() == 0;
  if (!plain || a.epoch() != b.epoch() || a.round() != b.round() ||
      a.first_position() + a.token_ids_size() != b.first_position() ||
      a.token_ids_size() + b.token_ids_size() > kMaxMergedTokens) {
    return false;
  }
  a.mutable_token_ids()->MergeFrom(b.token_ids());
  a.mutable_log_probs()->MergeFrom(b.log_probs());
  a.mutable_top_log_probs()->MergeFrom(b.top_log_probs());
  AddSeconds(b.seconds(), *a.mutable_seconds());
  a.set_finish_reason(b.finish_reason());
  return true;
}

}  // namespace arborist::drafter
