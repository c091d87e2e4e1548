#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "arborist/v1/coordinator.pb.h"
#include "common/tokenizer/tokenizer.h"
#include "coordinator/generation_defaults.h"
#include "coordinator/sequence_path.h"

namespace arborist::coordinator {

struct ResolvedRequest {
  PathStart start;  // without request_id and deadline
  std::vector<std::string> stops;
  absl::Duration timeout = absl::InfiniteDuration();  // the request's own
};

// Turns a request into ids and complete parameters: what it leaves open comes from `defaults`, a seed is
// drawn. InvalidArgument names field, value and expectation; Unimplemented names a field that we do not serve
// yet; NotFound a model that we do not have.
absl::StatusOr<ResolvedRequest> ResolveRequest(const v1::GenerateRequest& request, const VerifierFacts& model,
                                               const std::string& model_name,
                                               const GenerationDefaults& defaults,
                                               const Tokenizer& tokenizer);

// A conversation as ids. Errors name fields below `field`.
absl::StatusOr<std::vector<TokenId>> EncodeChat(const v1::ChatMessages& chat, const Tokenizer& tokenizer);

}  // namespace arborist::coordinator
