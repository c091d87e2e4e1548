#include "verifier/model/model_config.h"

#include <algorithm>
#include <limits>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/base/model_file.h"
#include "common/base/status_macros.h"
#include "common/json/json.h"

namespace arborist::verifier {
namespace {

constexpr int64_t kMaxSize = std::numeric_limits<int32_t>::max();
// Well inside a float, with room for products of a few.
constexpr double kSmallestPositive = 1e-30;
constexpr double kLargestNumber = 1e30;
constexpr double kLargestMagnitude = 1e6;  // of mscale: its square scales the scores

absl::StatusOr<int64_t> Size(const JsonObject& json, const std::string& key, int64_t smallest = 1,
                             int64_t largest = kMaxSize) {
  ASSIGN_OR_RETURN(const int64_t value, json.Int(key));
  if (value < smallest || value > largest) {
    return json.Unexpected(key, absl::StrCat("an integer in [", smallest, ", ", largest, "]"));
  }
  return value;
}

// Positive, also as a float, so that no square root or division by it goes wrong.
absl::StatusOr<double> Positive(const JsonObject& json, const std::string& key, double fallback) {
  ASSIGN_OR_RETURN(const double value, json.NumberOr(key, fallback));
  if (!(value >= kSmallestPositive && value <= kLargestNumber)) {
    return json.Unexpected(key, "a number above 0 (from 1e-30 to 1e30)");
  }
  return value;
}

// Keys that change the meaning of the weights in ways the model does not know.
absl::Status RefuseUnsupported(const JsonObject& json) {
  if (json.Has("quantization_config")) {
    return json.Unexpected("quantization_config", "none: weights are supported in bf16, f16 and f32 only");
  }
  ASSIGN_OR_RETURN(const bool attention_bias, json.BoolOr("attention_bias", false));
  if (attention_bias) {
    return json.Unexpected("attention_bias", "false");
  }
  ASSIGN_OR_RETURN(const bool mlp_bias, json.BoolOr("mlp_bias", false));
  if (mlp_bias) {
    return json.Unexpected("mlp_bias", "false");
  }
  ASSIGN_OR_RETURN(const std::string activation, json.StringOr("hidden_act", "silu"));
  if (activation != "silu") {
    return json.Unexpected("hidden_act", "\"silu\"");
  }
  return absl::OkStatus();
}

absl::StatusOr<YarnScaling> ReadYarn(const JsonObject& scaling) {
  YarnScaling yarn;
  ASSIGN_OR_RETURN(yarn.factor, scaling.Number("factor"));
  if (!(yarn.factor >= 1 && yarn.factor <= kLargestNumber)) {
    return scaling.Unexpected("factor", "a number of at least 1 (and at most 1e30)");
  }
  ASSIGN_OR_RETURN(yarn.beta_fast, Positive(scaling, "beta_fast", 32));
  ASSIGN_OR_RETURN(yarn.beta_slow, Positive(scaling, "beta_slow", 1));
  ASSIGN_OR_RETURN(yarn.mscale, scaling.NumberOr("mscale", 0));
  ASSIGN_OR_RETURN(yarn.mscale_all_dim, scaling.NumberOr("mscale_all_dim", 0));
  for (const auto& [key, value] :
       {std::pair("mscale", yarn.mscale), {"mscale_all_dim", yarn.mscale_all_dim}}) {
    if (!(value >= 0 && value <= kLargestMagnitude)) {
      return scaling.Unexpected(key, "a number of at least 0 (and at most 1e6)");
    }
  }
  if (scaling.Has("attention_factor")) {
    ASSIGN_OR_RETURN(yarn.attention_factor, Positive(scaling, "attention_factor", 1));
  }
  ASSIGN_OR_RETURN(const bool truncate, scaling.BoolOr("truncate", true));
  if (!truncate) {
    return scaling.Unexpected("truncate", "true");
  }
  ASSIGN_OR_RETURN(yarn.original_max_position_embeddings, Size(scaling, "original_max_position_embeddings"));
  return yarn;
}

// Above 1: YaRN divides by its logarithm.
absl::StatusOr<double> Theta(const JsonObject& json, double fallback) {
  ASSIGN_OR_RETURN(const double value, json.NumberOr("rope_theta", fallback));
  if (!(value > 1 && value <= kLargestNumber)) {
    return json.Unexpected("rope_theta", "a number above 1 (and at most 1e30)");
  }
  return value;
}

// Published files say rope_scaling{type} or {rope_type}; transformers 5 writes rope_parameters, rope_theta
// included.
absl::Status ReadRope(const JsonObject& json, ModelConfig& config) {
  ASSIGN_OR_RETURN(config.rope_interleave, json.BoolOr("rope_interleave", true));
  ASSIGN_OR_RETURN(config.rope_theta, Theta(json, 10000));
  const std::string key = json.Has("rope_parameters") ? "rope_parameters" : "rope_scaling";
  if (!json.Has(key)) {
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(const JsonObject scaling, json.Object(key));
  ASSIGN_OR_RETURN(config.rope_theta, Theta(scaling, config.rope_theta));
  const std::string type_key = scaling.Has("rope_type") ? "rope_type" : "type";
  const absl::StatusOr<std::string> type = scaling.String(type_key);
  if (!type.ok()) {
    return type.status();
  }
  if (*type == "yarn") {
    ASSIGN_OR_RETURN(config.yarn, ReadYarn(scaling));
  } else if (*type != "default") {
    return scaling.Unexpected(type_key, "\"yarn\" or \"default\"");
  }
  return absl::OkStatus();
}

absl::Status ReadAttention(const JsonObject& json, ModelConfig& config) {
  ASSIGN_OR_RETURN(config.heads, Size(json, "num_attention_heads"));
  if (json.Has("q_lora_rank")) {
    ASSIGN_OR_RETURN(config.q_lora_rank, Size(json, "q_lora_rank"));
  }
  ASSIGN_OR_RETURN(config.kv_lora_rank, Size(json, "kv_lora_rank"));
  ASSIGN_OR_RETURN(config.qk_nope_head_dim, Size(json, "qk_nope_head_dim"));
  ASSIGN_OR_RETURN(config.qk_rope_head_dim, Size(json, "qk_rope_head_dim"));
  if (config.qk_rope_head_dim % 2 != 0) {
    return json.Unexpected("qk_rope_head_dim", "an even number");
  }
  ASSIGN_OR_RETURN(config.v_head_dim, Size(json, "v_head_dim"));
  return ReadRope(json, config);
}

absl::Status ReadRouteMethod(const JsonObject& json, ModelConfig& config) {
  const bool v2 = config.model_type == "deepseek_v2";
  ASSIGN_OR_RETURN(const std::string scoring, json.StringOr("scoring_func", v2 ? "softmax" : "sigmoid"));
  ASSIGN_OR_RETURN(const std::string method, json.StringOr("topk_method", v2 ? "greedy" : "noaux_tc"));
  if (scoring != "sigmoid" && scoring != "softmax") {
    return json.Unexpected("scoring_func", "\"sigmoid\" or \"softmax\"");
  }
  if (method == "noaux_tc") {
    config.route_method = RouteMethod::kNoauxTc;
  } else if (method == "greedy") {
    config.route_method = RouteMethod::kGreedy;
  } else if (method == "group_limited_greedy") {
    config.route_method = RouteMethod::kGroupLimitedGreedy;
  } else {
    return json.Unexpected("topk_method", "\"noaux_tc\", \"greedy\" or \"group_limited_greedy\"");
  }
  if ((scoring == "sigmoid") != (config.route_method == RouteMethod::kNoauxTc)) {
    return json.Unexpected("scoring_func", absl::StrCat("\"sigmoid\" with noaux_tc and \"softmax\" with the "
                                                        "greedy methods (topk_method is \"",
                                                        method, "\")"));
  }
  return absl::OkStatus();
}

absl::Status ReadGroups(const JsonObject& json, ModelConfig& config) {
  config.groups = 1;
  config.kept_groups = 1;
  if (config.route_method != RouteMethod::kGreedy && json.Has("n_group")) {
    ASSIGN_OR_RETURN(config.groups, Size(json, "n_group", 1, config.routed_experts));
    ASSIGN_OR_RETURN(config.kept_groups, Size(json, "topk_group", 1, config.groups));
  }
  const int64_t members = config.routed_experts / config.groups;
  if (members * config.groups != config.routed_experts) {
    return json.Unexpected("n_group", absl::StrCat("a divisor of n_routed_experts=", config.routed_experts));
  }
  if (config.groups > 1 && config.route_method == RouteMethod::kNoauxTc && members < 2) {
    return json.Unexpected("n_group", "groups of at least two experts");
  }
  if (config.experts_per_token > members * config.kept_groups) {
    return json.Unexpected("num_experts_per_tok", absl::StrCat("at most the ", members * config.kept_groups,
                                                               " experts of the kept groups"));
  }
  return absl::OkStatus();
}

absl::Status ReadExperts(const JsonObject& json, ModelConfig& config) {
  ASSIGN_OR_RETURN(config.intermediate_size, Size(json, "intermediate_size"));
  ASSIGN_OR_RETURN(config.first_k_dense_replace, Size(json, "first_k_dense_replace", 0));
  if (json.Has("moe_layer_freq")) {
    ASSIGN_OR_RETURN(config.moe_layer_freq, Size(json, "moe_layer_freq"));
  }
  ASSIGN_OR_RETURN(config.routed_experts, Size(json, "n_routed_experts"));
  ASSIGN_OR_RETURN(config.experts_per_token, Size(json, "num_experts_per_tok", 1, config.routed_experts));
  ASSIGN_OR_RETURN(config.moe_intermediate_size, Size(json, "moe_intermediate_size"));
  if (json.Has("n_shared_experts")) {
    ASSIGN_OR_RETURN(config.shared_experts, Size(json, "n_shared_experts", 0, 1024));
  }
  RETURN_IF_ERROR(ReadRouteMethod(json, config));
  RETURN_IF_ERROR(ReadGroups(json, config));
  ASSIGN_OR_RETURN(config.norm_topk_prob, json.BoolOr("norm_topk_prob", false));
  if (config.norm_topk_prob && config.route_method != RouteMethod::kNoauxTc) {
    return json.Unexpected("norm_topk_prob",
                           "false with softmax scoring: other implementations disagree on it");
  }
  ASSIGN_OR_RETURN(config.routed_scaling_factor, Positive(json, "routed_scaling_factor", 1));
  return absl::OkStatus();
}

// eos_token_id is a number or a list of numbers.
absl::Status AddEosIds(const JsonObject& json, ModelConfig& config) {
  if (!json.Has("eos_token_id")) {
    return absl::OkStatus();
  }
  std::vector<int64_t> ids;
  if (absl::StatusOr<int64_t> one = json.Int("eos_token_id"); one.ok()) {
    ids.push_back(*one);
  } else {
    ASSIGN_OR_RETURN(ids, json.IntList("eos_token_id"));
  }
  for (const int64_t id : ids) {
    if (id < 0 || id >= config.vocab_size) {
      return json.Unexpected("eos_token_id", absl::StrCat("ids in [0, ", config.vocab_size, ")"));
    }
    config.eos_ids.push_back(static_cast<int32_t>(id));
  }
  return absl::OkStatus();
}

template <typename T>
absl::Status SetIfGiven(const JsonObject& json, const std::string& key,
                        absl::StatusOr<T> (JsonObject::*read)(const std::string&) const,
                        std::optional<T>& out) {
  if (json.Has(key)) {
    ASSIGN_OR_RETURN(out, (json.*read)(key));
  }
  return absl::OkStatus();
}

absl::Status ReadGeneration(const std::string& directory, ModelConfig& config) {
  const std::string path = directory + "/generation_config.json";
  if (!HasModelFile(path)) {
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(const JsonObject json, ReadJson(path));
  RETURN_IF_ERROR(AddEosIds(json, config));
  DefaultSampling& sampling = config.default_sampling;
  RETURN_IF_ERROR(SetIfGiven(json, "do_sample", &JsonObject::Bool, sampling.do_sample));
  RETURN_IF_ERROR(SetIfGiven(json, "temperature", &JsonObject::Number, sampling.temperature));
  RETURN_IF_ERROR(SetIfGiven(json, "top_p", &JsonObject::Number, sampling.top_p));
  RETURN_IF_ERROR(SetIfGiven(json, "min_p", &JsonObject::Number, sampling.min_p));
  return SetIfGiven(json, "top_k", &JsonObject::Int, sampling.top_k);
}

absl::Status ReadLanguageModel(const JsonObject& json, ModelConfig& config) {
  ASSIGN_OR_RETURN(config.model_type, json.String("model_type"));
  if (config.model_type != "deepseek_v2" && config.model_type != "deepseek_v3" &&
      config.model_type != "kimi_k2") {
    return json.Unexpected("model_type",
                           "\"deepseek_v2\", \"deepseek_v3\" or \"kimi_k2\" (or \"kimi_k25\" around "
                           "one of them)");
  }
  RETURN_IF_ERROR(RefuseUnsupported(json));
  ASSIGN_OR_RETURN(config.vocab_size, Size(json, "vocab_size"));
  ASSIGN_OR_RETURN(config.hidden_size, Size(json, "hidden_size"));
  ASSIGN_OR_RETURN(config.layers, Size(json, "num_hidden_layers", 1, 1024));
  ASSIGN_OR_RETURN(config.max_position_embeddings, Size(json, "max_position_embeddings"));
  ASSIGN_OR_RETURN(config.rms_norm_eps, Positive(json, "rms_norm_eps", 1e-6));
  ASSIGN_OR_RETURN(config.tie_word_embeddings, json.BoolOr("tie_word_embeddings", false));
  RETURN_IF_ERROR(ReadAttention(json, config));
  RETURN_IF_ERROR(ReadExperts(json, config));
  if (json.Has("bos_token_id")) {
    ASSIGN_OR_RETURN(config.bos_id, Size(json, "bos_token_id", 0, config.vocab_size - 1));
  }
  return AddEosIds(json, config);
}

}  // namespace

absl::StatusOr<ModelConfig> ReadModelConfig(const std::string& directory) {
  ASSIGN_OR_RETURN(const JsonObject json, ReadJson(directory + "/config.json"));
  ModelConfig config;
  if (json.Has("text_config")) {  // Kimi K2.5 and K2.6: a vision model around the language model
    ASSIGN_OR_RETURN(const std::string wrapper, json.String("model_type"));
    if (wrapper != "kimi_k25") {
      return json.Unexpected("model_type", "\"kimi_k25\" where there is a text_config");
    }
    RETURN_IF_ERROR(RefuseUnsupported(json));
    ASSIGN_OR_RETURN(const JsonObject text, json.Object("text_config"));
    config.tensor_prefix = "language_model.";
    RETURN_IF_ERROR(ReadLanguageModel(text, config));
    ASSIGN_OR_RETURN(config.tie_word_embeddings,
                     json.BoolOr("tie_word_embeddings", config.tie_word_embeddings));
    RETURN_IF_ERROR(AddEosIds(json, config));
  } else {
    RETURN_IF_ERROR(ReadLanguageModel(json, config));
  }
  RETURN_IF_ERROR(ReadGeneration(directory, config));
  std::sort(config.eos_ids.begin(), config.eos_ids.end());
  config.eos_ids.erase(std::unique(config.eos_ids.begin(), config.eos_ids.end()), config.eos_ids.end());
  return config;
}

}  // namespace arborist::verifier
