#include "coordinator/sequence_codec.h"

#include "common/rpc/protocol.h"
#include "common/rpc/tree_codec.h"

namespace arborist::coordinator {

void EncodeSequence(const PathStart& start, v1::Sequence& message) {
  message.set_protocol_version(kProtocolVersion);
  message.set_request_id(start.request_id);
  message.set_epoch(start.epoch);
  EncodeTokens(start.prompt, *message.mutable_prompt());
  EncodeTokens(start.output_so_far, *message.mutable_output_so_far());
  message.set_mode(EncodeMode(start.mode));
  message.set_tree_nodes(start.tree_nodes);
  message.set_fingerprint(start.fingerprint);
  message.set_priority(start.priority);
  v1::Sampling& sampling = *message.mutable_sampling();
  sampling.set_temperature(start.sampling.temperature);
  sampling.set_top_k(start.sampling.top_k);
  sampling.set_top_p(start.sampling.top_p);
  sampling.set_min_p(start.sampling.min_p);
  sampling.set_seed(start.sampling.seed);
  sampling.set_max_tokens(start.sampling.max_tokens);
  EncodeTokens(start.sampling.stop_ids, *sampling.mutable_stop_ids());
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
    default:
      return FinishReason::kNone;  // a stop string is the coordinator's alone to say
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
