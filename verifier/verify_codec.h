#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "arborist/v1/verifier.pb.h"
#include "verifier/verifier.h"

namespace arborist::verifier {

// What this verifier is, as GetInfo says it and as Open is checked against.
struct VerifierInfo {
  std::string fingerprint;
  std::string projection_hash;  // empty: no features
  std::string model_name;
  int32_t vocabulary_size = 0;
  int32_t hidden_size = 0;
  int32_t context_length = 0;
  int32_t max_tree_nodes = 0;
  int32_t max_sequences = 0;
};

// Checks every field and names the one at fault, its value and what was expected: INVALID_ARGUMENT, or
// FAILED_PRECONDITION for a peer that does not fit, or UNIMPLEMENTED for fields of later versions.
absl::StatusOr<OpenArgs> DecodeOpen(const v1::Open& open, const VerifierInfo& info);
absl::Status CheckDraftSeconds(double seconds);

v1::VerifyResponse EncodeCommitted(const Committed& committed);
v1::VerifyResponse EncodeFeatures(int32_t first_position, int32_t rows,
                                  const std::vector<uint16_t>& features);
v1::VerifyResponse EncodePromptLogProbs(int32_t first_position, const std::vector<float>& log_probs);
// `next_budget` where the sequence waits for its first round.
v1::VerifyResponse EncodeProgress(ProgressState state, int prompt_tokens_done,
                                  std::optional<int> next_budget);

// Joins two results of one Decode that a slow reader left waiting, up to 64 tokens; false leaves both alone.
bool MergeDecoded(v1::VerifyResponse& tail, v1::VerifyResponse& next);
// The same of log-probabilities of a prompt, up to kMaxPromptLogProbs.
bool MergePromptLogProbs(v1::VerifyResponse& tail, const v1::VerifyResponse& next);

}  // namespace arborist::verifier
