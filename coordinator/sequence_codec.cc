#include "coordinator/sequence_codec.h"

#include "common/rpc/protocol.h"
#include "common/rpc/tree_codec.h"

namespace arborist::coordinator {
namespace {

void EncodeSampling(const SamplingParameters& in, v1::Sampling& out) {
  out.set_temperature(in.temperature);
  out.set_top_k(in.top_k);
  out.set_top_p(in.top_p);
  out.set_min_p(in.min_p);
  out.set_seed(in.seed);
  out.set_repetition_penalty(in.repetition_penalty);
  out.set_presence_penalty(in.presence_penalty);
  out.set_frequency_penalty(in.frequency_penalty);
  for (const LogitBias& entry : in.logit_bias) {
    v1::LogitBias& bias = *out.add_logit_bias();
    bias.set_token_id(Raw(entry.token));
    bias.set_bias(entry.bias);
  }
  EncodeTokens(in.allowed_token_ids, *out.mutable_allowed_token_ids());
  out.mutable_bad_words()->Add(in.bad_words.begin(), in.bad_words.end());
  out.set_min_tokens(in.min_tokens);
  out.set_max_tokens(in.max_tokens);
  EncodeTokens(in.stop_ids, *out.mutable_stop_ids());
  out.set_top_log_probs(in.top_log_probs);
  out.set_prompt_log_probs(in.prompt_log_probs);
  switch (in.constraint_kind) {
    case ConstraintKind::kJsonSchema:
      out.set_json_schema(in.constraint);
      break;
    case ConstraintKind::kRegex:
      out.set_regex(in.constraint);
      break;
    case ConstraintKind::kNone:
      break;
  }
}

}  // namespace

void EncodeSequence(const PathStart& start, v1::Sequence& message) {
  message.set_protocol_version(kProtocolVersion);
  message.set_request_id(start.request_id);
  message.set_sample_index(start.sample_index);
  message.set_epoch(start.epoch);
  EncodeTokens(start.prompt, *message.mutable_prompt());
  EncodeTokens(start.output_so_far, *message.mutable_output_so_far());
  message.set_mode(EncodeMode(start.mode));
  message.set_tree_nodes(start.tree_nodes);
  message.set_fingerprint(start.fingerprint);
  message.set_priority(start.priority);
  EncodeSampling(start.sampling, *message.mutable_sampling());
}

v1::SpeculationMode EncodeMode(Mode mode) {
  switch (mode) {
    case Mode::kAuto:
      return v1::SPECULATION_MODE_AUTO;
    case Mode::kTree:
      return v1::SPECULATION_MODE_TREE;
    case Mode::kChain:
      return v1::SPECULATION_MODE_CHAIN;
    case Mode::kOff:
      return v1::SPECULATION_MODE_OFF;
  }
  return v1::SPECULATION_MODE_UNSPECIFIED;
}

v1::FinishReason EncodeFinish(FinishReason reason) {
  switch (reason) {
    case FinishReason::kStopId:
      return v1::FINISH_REASON_STOP_ID;
    case FinishReason::kStopString:
      return v1::FINISH_REASON_STOP_STRING;
    case FinishReason::kMaxTokens:
      return v1::FINISH_REASON_MAX_TOKENS;
    case FinishReason::kContextLimit:
      return v1::FINISH_REASON_CONTEXT_LIMIT;
    case FinishReason::kConstraint:
      return v1::FINISH_REASON_CONSTRAINT;
    case FinishReason::kNone:
      break;
  }
  return v1::FINISH_REASON_UNSPECIFIED;
}

FinishReason DecodeFinish(v1::FinishReason reason) {
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
      return FinishReason::kNone;  // a stop string is the coordinator's alone to say
  }
}

PromptScores DecodePromptScores(const v1::PromptLogProbs& message) {
  return {message.first_position(), {message.log_probs().begin(), message.log_probs().end()}};
}

std::vector<TopLogProbs> DecodeTopLogProbs(const google::protobuf::RepeatedPtrField<v1::TopLogProbs>& lists) {
  std::vector<TopLogProbs> out;
  for (const v1::TopLogProbs& list : lists) {
    TopLogProbs& tokens = out.emplace_back();
    for (const v1::TokenLogProb& token : list.tokens()) {
      tokens.push_back({TokenId{token.token_id()}, token.log_prob()});
    }
  }
  return out;
}

void EncodeTopLogProbs(const std::vector<TopLogProbs>& lists,
                       google::protobuf::RepeatedPtrField<v1::TopLogProbs>& message) {
  for (const TopLogProbs& list : lists) {
    v1::TopLogProbs& tokens = *message.Add();
    for (const TokenLogProb& token : list) {
      v1::TokenLogProb& out = *tokens.add_tokens();
      out.set_token_id(Raw(token.token));
      out.set_log_prob(token.log_prob);
    }
  }
}

PathEnd DecodeEnd(const grpc::Status& status) {
  PathEnd end;
  end.status = FromGrpcStatus(status);
  end.origin = OriginOf(end.status);
  end.reason = ReasonOf(end.status);
  return end;
}

}  // namespace arborist::coordinator
