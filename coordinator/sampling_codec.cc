#include "coordinator/sampling_codec.h"

#include <algorithm>
#include <random>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/base/stop_choice.h"
#include "common/base/utf8.h"
#include "common/rpc/status_bridge.h"
#include "common/rpc/tree_codec.h"

namespace arborist::coordinator {
namespace {

constexpr int kMaxStopIds = 64;
constexpr int kMaxLogitBias = 1024;
constexpr size_t kMaxBadWords = 128;
constexpr size_t kMaxBadWordBytes = 256;
constexpr size_t kMaxSchemaBytes = 64 << 10;
constexpr size_t kMaxRegexBytes = 4 << 10;

absl::StatusOr<float> Number(const char* field, float value, float least, float most) {
  if (!(value >= least && value <= most)) {  // NaN too
    return FieldError(field, absl::StrCat(value), absl::StrCat("a number in [", least, ", ", most, "]"));
  }
  return value;
}

// The same without 0.
absl::StatusOr<float> Positive(const char* field, float value, float most) {
  if (!(value > 0 && value <= most)) {
    return FieldError(field, absl::StrCat(value), absl::StrCat("a number in (0, ", most, "]"));
  }
  return value;
}

absl::StatusOr<int32_t> Integer(const char* field, int32_t value, int32_t least, int32_t most) {
  if (value < least || value > most) {
    return FieldError(field, absl::StrCat(value), absl::StrCat("an integer in [", least, ", ", most, "]"));
  }
  return value;
}

absl::Status CheckId(const std::string& field, int32_t id, int32_t vocabulary_size) {
  if (id < 0 || id >= vocabulary_size) {
    return FieldError(field, absl::StrCat(id), absl::StrCat("an id in [0, ", vocabulary_size, ")"));
  }
  return absl::OkStatus();
}

absl::Status ResolveTruncation(const v1::GenerateRequest& request, const VerifierFacts& model,
                               const GenerationDefaults& defaults, SamplingParameters& out) {
  ASSIGN_OR_RETURN(out.temperature,
                   Number("temperature",
                          request.has_temperature() ? request.temperature() : defaults.temperature, 0, 100));
  ASSIGN_OR_RETURN(out.top_p, Positive("top_p", request.has_top_p() ? request.top_p() : defaults.top_p, 1));
  ASSIGN_OR_RETURN(out.min_p, Number("min_p", request.has_min_p() ? request.min_p() : defaults.min_p, 0, 1));
  ASSIGN_OR_RETURN(out.top_k, Integer("top_k",
                                      request.has_top_k() ? request.top_k()
                                                          : std::min(defaults.top_k, model.vocabulary_size),
                                      0, model.vocabulary_size));
  if (request.has_seed()) {
    out.seed = request.seed();
  } else {
    std::random_device random;
    out.seed = (uint64_t{random()} << 32) | random();
  }
  return absl::OkStatus();
}

absl::Status ResolvePenalties(const v1::GenerateRequest& request, const GenerationDefaults& defaults,
                              SamplingParameters& out) {
  ASSIGN_OR_RETURN(
      out.repetition_penalty,
      Positive("repetition_penalty",
               request.has_repetition_penalty() ? request.repetition_penalty() : defaults.repetition_penalty,
               10));
  ASSIGN_OR_RETURN(out.presence_penalty, Number("presence_penalty", request.presence_penalty(), -2, 2));
  ASSIGN_OR_RETURN(out.frequency_penalty, Number("frequency_penalty", request.frequency_penalty(), -2, 2));
  return absl::OkStatus();
}

absl::Status ResolveBias(const v1::GenerateRequest& request, const VerifierFacts& model,
                         SamplingParameters& out) {
  if (request.logit_bias_size() > kMaxLogitBias) {
    return FieldError("logit_bias", absl::StrCat(request.logit_bias_size(), " ids"),
                      absl::StrCat("at most ", kMaxLogitBias));
  }
  std::vector<bool> seen(request.logit_bias_size() > 0 ? model.vocabulary_size : 0);
  for (int i = 0; i < request.logit_bias_size(); ++i) {
    const v1::LogitBias& entry = request.logit_bias(i);
    const std::string field = absl::StrCat("logit_bias[", i, "]");
    RETURN_IF_ERROR(CheckId(field + ".token_id", entry.token_id(), model.vocabulary_size));
    if (seen[entry.token_id()]) {
      return FieldError(field + ".token_id", absl::StrCat(entry.token_id()), "ids that differ");
    }
    seen[entry.token_id()] = true;
    ASSIGN_OR_RETURN(const float bias, Number((field + ".bias").c_str(), entry.bias(), -100, 100));
    out.logit_bias.push_back({TokenId{entry.token_id()}, bias});
  }
  return absl::OkStatus();
}

absl::Status ResolveAllowed(const v1::GenerateRequest& request, const VerifierFacts& model,
                            SamplingParameters& out) {
  std::vector<bool> seen(request.allowed_token_ids_size() > 0 ? model.vocabulary_size : 0);
  for (int i = 0; i < request.allowed_token_ids_size(); ++i) {
    const int32_t id = request.allowed_token_ids(i);
    const std::string field = absl::StrCat("allowed_token_ids[", i, "]");
    RETURN_IF_ERROR(CheckId(field, id, model.vocabulary_size));
    if (seen[id]) {
      return FieldError(field, absl::StrCat(id), "ids that differ");
    }
    seen[id] = true;
  }
  out.allowed_token_ids = DecodeTokens(request.allowed_token_ids());
  return absl::OkStatus();
}

absl::Status CheckText(const char* field, const std::string& text, size_t least, size_t most) {
  if (text.size() < least || text.size() > most) {
    return FieldError(field, absl::StrCat(text.size(), " bytes"),
                      absl::StrCat(least, " to ", most, " bytes"));
  }
  if (const size_t valid = ValidUtf8Prefix(text); valid < text.size()) {
    return FieldError(field, absl::StrCat("a broken character at byte ", valid), "UTF-8");
  }
  return absl::OkStatus();
}

absl::Status ResolveForm(const v1::GenerateRequest& request, SamplingParameters& out) {
  RETURN_IF_ERROR(CheckStrings("bad_words", request.bad_words(), kMaxBadWords, kMaxBadWordBytes));
  out.bad_words.assign(request.bad_words().begin(), request.bad_words().end());
  switch (request.constraint_case()) {
    case v1::GenerateRequest::kJsonSchema:
      RETURN_IF_ERROR(CheckText("json_schema", request.json_schema(), 1, kMaxSchemaBytes));
      out.constraint_kind = ConstraintKind::kJsonSchema;
      out.constraint = request.json_schema();
      break;
    case v1::GenerateRequest::kRegex:
      RETURN_IF_ERROR(CheckText("regex", request.regex(), 1, kMaxRegexBytes));
      out.constraint_kind = ConstraintKind::kRegex;
      out.constraint = request.regex();
      break;
    case v1::GenerateRequest::CONSTRAINT_NOT_SET:
      break;
  }
  return absl::OkStatus();
}

absl::Status ResolveLengths(const v1::GenerateRequest& request, const VerifierFacts& model,
                            const GenerationDefaults& defaults, SamplingParameters& out) {
  const int32_t otherwise =
      defaults.max_tokens > 0 ? std::min(defaults.max_tokens, model.context_length) : model.context_length;
  ASSIGN_OR_RETURN(out.max_tokens,
                   Integer("max_tokens", request.has_max_tokens() ? request.max_tokens() : otherwise, 1,
                           model.context_length));
  ASSIGN_OR_RETURN(out.min_tokens, Integer("min_tokens", request.min_tokens(), 0, out.max_tokens));
  return absl::OkStatus();
}

absl::Status ResolveStopIds(const v1::GenerateRequest& request, const VerifierFacts& model,
                            const GenerationDefaults& defaults, SamplingParameters& out) {
  if (request.stop_ids_size() > kMaxStopIds) {
    return FieldError("stop_ids", absl::StrCat(request.stop_ids_size(), " ids"),
                      absl::StrCat("at most ", kMaxStopIds));
  }
  std::vector<TokenId>& ids = out.stop_ids;
  if (!request.ignore_eos()) {
    ids = defaults.eos_ids;
  }
  for (int i = 0; i < request.stop_ids_size(); ++i) {
    RETURN_IF_ERROR(CheckId(absl::StrCat("stop_ids[", i, "]"), request.stop_ids(i), model.vocabulary_size));
    ids.push_back(TokenId{request.stop_ids(i)});
  }
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  return absl::OkStatus();
}

// The model's end-of-sequence ids count: they are held back too.
absl::Status CheckSomethingIsLeft(const SamplingParameters& sampling, int32_t vocabulary) {
  const std::vector<TokenId>& allowed = sampling.allowed_token_ids;
  if (sampling.min_tokens > 0 && !StopsLeaveAChoice(sampling.stop_ids, allowed, vocabulary)) {
    return FieldError("min_tokens", absl::StrCat(sampling.min_tokens),
                      allowed.empty() ? "0 where every id is a stop id"
                                      : "0 where allowed_token_ids holds nothing but stop_ids");
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckStrings(const char* field, const google::protobuf::RepeatedPtrField<std::string>& strings,
                          size_t most, size_t most_bytes) {
  if (static_cast<size_t>(strings.size()) > most) {
    return FieldError(field, absl::StrCat(strings.size(), " strings"), absl::StrCat("at most ", most));
  }
  for (int i = 0; i < strings.size(); ++i) {
    RETURN_IF_ERROR(CheckText(absl::StrCat(field, "[", i, "]").c_str(), strings[i], 1, most_bytes));
  }
  return absl::OkStatus();
}

absl::Status ResolveSampling(const v1::GenerateRequest& request, const VerifierFacts& model,
                             const GenerationDefaults& defaults, SamplingParameters& out) {
  RETURN_IF_ERROR(ResolveTruncation(request, model, defaults, out));
  RETURN_IF_ERROR(ResolvePenalties(request, defaults, out));
  RETURN_IF_ERROR(ResolveBias(request, model, out));
  RETURN_IF_ERROR(ResolveAllowed(request, model, out));
  RETURN_IF_ERROR(ResolveForm(request, out));
  RETURN_IF_ERROR(ResolveLengths(request, model, defaults, out));
  RETURN_IF_ERROR(ResolveStopIds(request, model, defaults, out));
  RETURN_IF_ERROR(CheckSomethingIsLeft(out, model.vocabulary_size));
  out.log_probs = request.log_probs();
  ASSIGN_OR_RETURN(out.top_log_probs, Integer("top_log_probs", request.top_log_probs(), 0, 20));
  out.prompt_log_probs = request.prompt_log_probs();
  return absl::OkStatus();
}

}  // namespace arborist::coordinator
