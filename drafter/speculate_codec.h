#pragma once

#include "absl/status/statusor.h"
#include "arborist/v1/drafter.pb.h"
#include "arborist/v1/verifier.pb.h"
#include "drafter/speculation_loop.h"

namespace arborist::drafter {

// What the drafter needs of the request; fields that only the verifier uses are checked there.
// INVALID_ARGUMENT names field, value and expectation; another protocol version is FAILED_PRECONDITION.
absl::StatusOr<SpeculationRequest> DecodeSpeculate(const v1::SpeculateRequest& request, int max_tree_nodes);

// The name of the token at index i of prompt + output, for errors.
std::string TokenField(size_t i, const v1::Sequence& sequence);

// The verifier's Open for the same sequence.
v1::VerifyRequest EncodeOpen(const v1::Sequence& sequence, int32_t feature_window,
                             const std::string& projection_hash);

v1::SpeculateResponse EncodeTokensMessage(const RoundTokens& tokens);
v1::SpeculateResponse EncodePromptLogProbs(const PromptLogProbs& log_probs);
v1::SpeculateResponse EncodeState(SpeculationState state, int prompt_tokens_done);

// Joins neighbours of one plain Decode that a slow reader left waiting, up to 64 tokens.
bool MergePlainTokens(v1::SpeculateResponse& tail, v1::SpeculateResponse& next);

}  // namespace arborist::drafter
