#pragma once

#include "arborist/v1/sequence.pb.h"
#include "common/rpc/status_bridge.h"
#include "coordinator/sequence_path.h"
#include "grpcpp/support/status.h"

namespace arborist::coordinator {

// The flow ends a request at its deadline; the calls below it have one too, a little later, so that theirs is
// not taken for a fault of the peer.
inline constexpr absl::Duration kDeadlineGrace = absl::Seconds(1);

void EncodeSequence(const PathStart& start, v1::Sequence& message);
v1::SpeculationMode EncodeMode(Mode mode);
v1::FinishReason EncodeFinish(FinishReason reason);
FinishReason DecodeFinish(v1::FinishReason reason);
PromptScores DecodePromptScores(const v1::PromptLogProbs& message);
std::vector<TopLogProbs> DecodeTopLogProbs(const google::protobuf::RepeatedPtrField<v1::TopLogProbs>& lists);
void EncodeTopLogProbs(const std::vector<TopLogProbs>& lists,
                       google::protobuf::RepeatedPtrField<v1::TopLogProbs>& message);
PathEnd DecodeEnd(const grpc::Status& status);

}  // namespace arborist::coordinator
