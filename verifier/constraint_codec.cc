#include "verifier/constraint_codec.h"

#include <chrono>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/rpc/status_bridge.h"
#include "common/rpc/tree_codec.h"

namespace arborist::verifier {
namespace {

constexpr char kPrefix[] = "sequence.sampling.";
constexpr std::chrono::milliseconds kRetryDelay{200};

std::string FieldOf(const v1::Sampling& sampling) {
  switch (sampling.constraint_case()) {
    case v1::Sampling::kJsonSchema:
      return absl::StrCat(kPrefix, "json_schema");
    case v1::Sampling::kRegex:
      return absl::StrCat(kPrefix, "regex");
    case v1::Sampling::CONSTRAINT_NOT_SET:
      break;
  }
  return absl::StrCat(kPrefix, "bad_words");
}

}  // namespace

bool IsConstrained(const v1::Sampling& sampling) {
  return sampling.constraint_case() != v1::Sampling::CONSTRAINT_NOT_SET || sampling.bad_words_size() > 0;
}

absl::StatusOr<ConstraintSpec> DecodeConstraint(const v1::Sampling& sampling) {
  if (sampling.has_json_schema() && sampling.json_schema().empty()) {
    return FieldError(FieldOf(sampling), "(0 bytes)", "a JSON schema");
  }
  if (sampling.has_regex() && sampling.regex().empty()) {
    return FieldError(FieldOf(sampling), "(0 bytes)", "a regular expression");
  }
  return ConstraintSpec{.json_schema = sampling.json_schema(),
                        .regex = sampling.regex(),
                        .bad_words = {sampling.bad_words().begin(), sampling.bad_words().end()},
                        .stop_ids = DecodeTokens(sampling.stop_ids())};
}

absl::Status NoTokenizer(const v1::Sampling& sampling) {
  return UnsupportedField(
      FieldOf(sampling), "(set)",
      "it unset: this verifier has no tokenizer (config field tokenizer, flag --tokenizer)");
}

// "json_schema: /type: ..." becomes "sequence.sampling.json_schema=(refused), /type: ...".
absl::Status ConstraintError(const absl::Status& status) {
  if (status.code() == absl::StatusCode::kResourceExhausted) {
    return WithRetryDelay(WithReason(status, reason::kQueueFull), kRetryDelay);
  }
  if (status.code() != absl::StatusCode::kInvalidArgument) {
    return status;
  }
  std::string message(status.message());
  if (!absl::StrContains(message, "expected")) {
    absl::StrAppend(&message, ", expected a form that common/grammar/README.md lists");
  }
  const size_t colon = message.find(": ");
  return ErrorWithReason(
      status.code(), reason::kBadRequest,
      colon == std::string::npos
          ? absl::StrCat(kPrefix, "constraint=(refused), ", message)
          : absl::StrCat(kPrefix, message.substr(0, colon), "=(refused), ", message.substr(colon + 2)));
}

}  // namespace arborist::verifier
