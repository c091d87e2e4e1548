#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "arborist/v1/coordinator.pb.h"
#include "common/tokenizer/tokenizer.h"
#include "coordinator/answer_text.h"
#include "coordinator/generation_defaults.h"
#include "coordinator/sequence_path.h"

namespace arborist::coordinator {

inline constexpr int kMaxSamples = 1024;  // of any server
inline constexpr int kMaxPriority = 100;

// What this server takes.
struct RequestLimits {
  int max_samples = 1;
  absl::Duration max_timeout = absl::InfiniteDuration();
};

struct ResolvedRequest {
  PathStart start;  // without request_id, sample_index and deadline
  TextRules text;
  int samples = 1;
  absl::Duration timeout = absl::InfiniteDuration();  // the request's own
};

// How many answers it wants.
absl::StatusOr<int> ResolveSamples(const v1::GenerateRequest& request, const RequestLimits& limits);

// Turns a request into ids and complete parameters: what it leaves open comes from `defaults`, a seed is
// drawn. InvalidArgument names field, value and expectation; Unimplemented a field that no model here can
// serve; NotFound a model that we do not have.
absl::StatusOr<ResolvedRequest> ResolveRequest(const v1::GenerateRequest& request, const VerifierFacts& model,
                                               const std::string& model_name,
                                               const GenerationDefaults& defaults,
                                               const RequestLimits& limits, const Tokenizer& tokenizer);

// A conversation as ids. Errors name fields below `field`.
absl::StatusOr<std::vector<TokenId>> EncodeChat(const v1::ChatMessages& chat, const Tokenizer& tokenizer);

}  // namespace arborist::coordinator
