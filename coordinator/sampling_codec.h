#pragma once

#include "absl/status/status.h"
#include "arborist/v1/coordinator.pb.h"
#include "coordinator/generation_defaults.h"
#include "coordinator/sequence_path.h"

namespace arborist::coordinator {

// How the next token is chosen and when the answer ends, with every default resolved and a seed drawn if the
// request has none. InvalidArgument names field, value and expectation. Whether a schema or a regular
// expression has a meaning is the verifier's to say.
absl::Status ResolveSampling(const v1::GenerateRequest& request, const VerifierFacts& model,
                             const GenerationDefaults& defaults, SamplingParameters& out);

// At most `most` strings of 1 to `most_bytes` bytes of UTF-8.
absl::Status CheckStrings(const char* field, const google::protobuf::RepeatedPtrField<std::string>& strings,
                          size_t most, size_t most_bytes);

}  // namespace arborist::coordinator
