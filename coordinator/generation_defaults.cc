#include "coordinator/generation_defaults.h"

#include "absl/strings/str_cat.h"
#include "common/base/model_file.h"
#include "common/base/status_macros.h"
#include "common/json/json.h"

namespace arborist::coordinator {
namespace {

absl::StatusOr<std::vector<TokenId>> EosIds(const JsonObject& json) {
  std::vector<TokenId> out;
  if (!json.Has("eos_token_id")) {
    return out;
  }
  std::vector<int64_t> ids;
  if (json.fields().fields().at("eos_token_id").has_list_value()) {
    ASSIGN_OR_RETURN(ids, json.IntList("eos_token_id"));
  } else {
    ASSIGN_OR_RETURN(const int64_t id, json.Int("eos_token_id"));
    ids.push_back(id);
  }
  for (const int64_t id : ids) {
    if (id < 0 || id > INT32_MAX) {
      return json.Unexpected("eos_token_id", "token ids");
    }
    out.push_back(TokenId{static_cast<int32_t>(id)});
  }
  return out;
}

absl::StatusOr<float> Bounded(const JsonObject& json, const std::string& key, double fallback, double least,
                              double most) {
  ASSIGN_OR_RETURN(const double value, json.NumberOr(key, fallback));
  if (!(value >= least && value <= most)) {
    return json.Unexpected(key, absl::StrCat("a number in [", least, ", ", most, "]"));
  }
  return static_cast<float>(value);
}

absl::Status ReadSampling(const JsonObject& json, GenerationDefaults& out) {
  ASSIGN_OR_RETURN(const bool sample, json.BoolOr("do_sample", false));
  ASSIGN_OR_RETURN(out.temperature, Bounded(json, "temperature", sample ? 1 : 0, 0, 100));
  ASSIGN_OR_RETURN(const int64_t top_k, json.IntOr("top_k", 0));
  if (top_k < 0 || top_k > INT32_MAX) {
    return json.Unexpected("top_k", "an integer >= 0");
  }
  out.top_k = static_cast<int32_t>(top_k);
  ASSIGN_OR_RETURN(out.top_p, Bounded(json, "top_p", 1, 0, 1));
  if (out.top_p == 0) {
    return json.Unexpected("top_p", "a number in (0, 1]");
  }
  ASSIGN_OR_RETURN(out.min_p, Bounded(json, "min_p", 0, 0, 1));
  ASSIGN_OR_RETURN(out.repetition_penalty, Bounded(json, "repetition_penalty", 1, 0, 10));
  if (out.repetition_penalty == 0) {
    return json.Unexpected("repetition_penalty", "a number in (0, 10]");
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<GenerationDefaults> ReadGenerationDefaults(const std::string& directory) {
  GenerationDefaults out;
  const std::string generation = directory + "/generation_config.json";
  if (HasModelFile(generation)) {
    ASSIGN_OR_RETURN(const JsonObject json, ReadJson(generation));
    RETURN_IF_ERROR(ReadSampling(json, out));
    ASSIGN_OR_RETURN(out.eos_ids, EosIds(json));
  }
  const std::string config = directory + "/config.json";
  if (out.eos_ids.empty() && HasModelFile(config)) {
    ASSIGN_OR_RETURN(const JsonObject json, ReadJson(config));
    ASSIGN_OR_RETURN(out.eos_ids, EosIds(json));
    if (out.eos_ids.empty() && json.Has("text_config")) {
      ASSIGN_OR_RETURN(const JsonObject text, json.Object("text_config"));
      ASSIGN_OR_RETURN(out.eos_ids, EosIds(text));
    }
  }
  return out;
}

}  // namespace arborist::coordinator
