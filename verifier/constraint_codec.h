#pragma once

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "arborist/v1/verifier.pb.h"
#include "common/grammar/constraint.h"

namespace arborist::verifier {

// Whether the request wants its text to have a form, or not to have words.
bool IsConstrained(const v1::Sampling& sampling);

// Of a constrained one. What is wrong inside a schema or a pattern is seen when it is compiled.
absl::StatusOr<ConstraintSpec> DecodeConstraint(const v1::Sampling& sampling);

// For a verifier without a tokenizer: names the field that it cannot serve, and why.
absl::Status NoTokenizer(const v1::Sampling& sampling);

// An error of the compiler with the field as the request has it.
absl::Status ConstraintError(const absl::Status& status);

}  // namespace arborist::verifier
