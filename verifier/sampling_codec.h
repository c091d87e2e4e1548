#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "arborist/v1/sequence.pb.h"
#include "verifier/verifier.h"

namespace arborist::verifier {

// INVALID_ARGUMENT with the field of a sequence's sampling that is at fault, its value and what was expected;
// UNIMPLEMENTED for fields of later versions.
absl::Status CheckSampling(const v1::Sampling& sampling, int32_t vocabulary);
// Of checked ones.
SamplingControls DecodeControls(const v1::Sampling& sampling);

}  // namespace arborist::verifier
