#include "verifier/sampling_codec.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/base/stop_choice.h"
#include "common/rpc/status_bridge.h"
#include "common/rpc/tree_codec.h"
#include "verifier/field_checks.h"

namespace arborist::verifier {
namespace {

absl::Status CheckDistinct(const std::string& field, std::vector<int32_t> ids) {
  std::sort(ids.begin(), ids.end());
  const auto repeated = std::adjacent_find(ids.begin(), ids.end());
  return repeated == ids.end()
             ? absl::OkStatus()
             : FieldError(field, absl::StrCat(*repeated, " more than once"), "distinct ids");
}

absl::Status CheckBiases(const std::string& field,
                         const google::protobuf::RepeatedPtrField<v1::LogitBias>& biases,
                         int32_t vocabulary) {
  RETURN_IF_ERROR(Range(field + " count", biases.size(), biases.size() <= kMaxLogitBiases,
                        absl::StrCat("at most ", kMaxLogitBiases)));
  std::vector<int32_t> ids;
  for (int i = 0; i < biases.size(); ++i) {
    const std::string name = absl::StrCat(field, "[", i, "].");
    const int32_t id = biases[i].token_id();
    RETURN_IF_ERROR(Range(name + "token_id", id, id >= 0 && id < vocabulary,
                          absl::StrCat("an id in [0, ", vocabulary, ")")));
    const float bias = biases[i].bias();
    RETURN_IF_ERROR(Range(name + "bias", bias, bias >= -100 && bias <= 100, "a finite value in [-100, 100]"));
    ids.push_back(id);
  }
  return CheckDistinct(field, std::move(ids));
}

absl::Status CheckSomethingIsLeft(const v1::Sampling& sampling, int32_t vocabulary,
                                  const std::string& prefix) {
  if (sampling.min_tokens() == 0) {
    return absl::OkStatus();
  }
  return Range(prefix + "min_tokens", sampling.min_tokens(),
               StopsLeaveAChoice(DecodeTokens(sampling.stop_ids()),
                                 DecodeTokens(sampling.allowed_token_ids()), vocabulary),
               sampling.allowed_token_ids().empty() ? "0 where every id is a stop id"
                                                    : "0 where allowed_token_ids holds nothing but stop_ids");
}

absl::Status CheckControls(const v1::Sampling& sampling, int32_t vocabulary) {
  const std::string prefix = "sequence.sampling.";
  const float repetition = sampling.repetition_penalty();
  RETURN_IF_ERROR(Range(prefix + "repetition_penalty", repetition, repetition >= 0 && repetition <= 10,
                        "a value in (0, 10], or 0 for 1"));
  const float presence = sampling.presence_penalty();
  RETURN_IF_ERROR(
      Range(prefix + "presence_penalty", presence, presence >= -2 && presence <= 2, "a value in [-2, 2]"));
  const float frequency = sampling.frequency_penalty();
  RETURN_IF_ERROR(Range(prefix + "frequency_penalty", frequency, frequency >= -2 && frequency <= 2,
                        "a value in [-2, 2]"));
  RETURN_IF_ERROR(CheckBiases(prefix + "logit_bias", sampling.logit_bias(), vocabulary));
  const auto& allowed = sampling.allowed_token_ids();
  RETURN_IF_ERROR(CheckIds(prefix + "allowed_token_ids", allowed, vocabulary));
  RETURN_IF_ERROR(CheckDistinct(prefix + "allowed_token_ids", {allowed.begin(), allowed.end()}));
  RETURN_IF_ERROR(Range(prefix + "min_tokens", sampling.min_tokens(),
                        sampling.min_tokens() >= 0 && sampling.min_tokens() <= sampling.max_tokens(),
                        absl::StrCat("a value in [0, max_tokens ", sampling.max_tokens(), "]")));
  RETURN_IF_ERROR(CheckSomethingIsLeft(sampling, vocabulary, prefix));
  return Range(prefix + "top_log_probs", sampling.top_log_probs(),
               sampling.top_log_probs() >= 0 && sampling.top_log_probs() <= kMaxTopLogProbs,
               absl::StrCat("a value in [0, ", kMaxTopLogProbs, "]"));
}

}  // namespace

absl::Status CheckSampling(const v1::Sampling& sampling, int32_t vocabulary) {
  const std::string prefix = "sequence.sampling.";
  const float t = sampling.temperature();
  RETURN_IF_ERROR(Range(prefix + "temperature", t, t >= 0 && t <= 100, "a finite value in [0, 100]"));
  RETURN_IF_ERROR(Range(prefix + "top_k", sampling.top_k(),
                        sampling.top_k() >= 0 && sampling.top_k() <= vocabulary,
                        absl::StrCat("a value in [0, ", vocabulary, "]")));
  const float p = sampling.top_p();
  RETURN_IF_ERROR(Range(prefix + "top_p", p, p >= 0 && p <= 1, "a value in (0, 1], or 0 for 1"));
  const float m = sampling.min_p();
  RETURN_IF_ERROR(Range(prefix + "min_p", m, m >= 0 && m <= 1, "a value in [0, 1]"));
  RETURN_IF_ERROR(
      Range(prefix + "max_tokens", sampling.max_tokens(), sampling.max_tokens() >= 1, "a value >= 1"));
  RETURN_IF_ERROR(Range(prefix + "stop_ids count", sampling.stop_ids_size(),
                        sampling.stop_ids_size() <= kMaxStopIds, absl::StrCat("at most ", kMaxStopIds)));
  RETURN_IF_ERROR(CheckIds(prefix + "stop_ids", sampling.stop_ids(), vocabulary));
  return CheckControls(sampling, vocabulary);
}

SamplingControls DecodeControls(const v1::Sampling& sampling) {
  SamplingControls controls;
  controls.repetition_penalty = sampling.repetition_penalty() == 0 ? 1.0f : sampling.repetition_penalty();
  controls.presence_penalty = sampling.presence_penalty();
  controls.frequency_penalty = sampling.frequency_penalty();
  for (const v1::LogitBias& bias : sampling.logit_bias()) {
    controls.logit_bias.push_back({.token = TokenId{bias.token_id()}, .bias = bias.bias()});
  }
  controls.allowed_token_ids = DecodeTokens(sampling.allowed_token_ids());
  controls.min_tokens = sampling.min_tokens();
  controls.top_log_probs = sampling.top_log_probs();
  controls.prompt_log_probs = sampling.prompt_log_probs();
  return controls;
}

}  // namespace arborist::verifier
