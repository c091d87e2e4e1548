#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace arborist::verifier {

enum class RouteMethod { kNoauxTc, kGreedy, kGroupLimitedGreedy };

// rope_scaling of type yarn; keys as in the file.
struct YarnScaling {
  double factor = 1;
  double beta_fast = 32;
  double beta_slow = 1;
  double mscale = 0;          // 0 = not given
  double mscale_all_dim = 0;  // 0 = not given
  std::optional<double> attention_factor = std::nullopt;
  int64_t original_max_position_embeddings = 0;
};

// What generation_config.json suggests; absent fields are the caller's to choose.
struct DefaultSampling {
  std::optional<bool> do_sample;
  std::optional<double> temperature;
  std::optional<double> top_p;
  std::optional<double> min_p;
  std::optional<int64_t> top_k;
};

// A DeepSeek-V2/V3 or Kimi K2 config.json after every check: sizes are positive and consistent, and nothing
// in the file asks for what the model cannot do.
struct ModelConfig {
  std::string model_type;     // of the language model: deepseek_v2, deepseek_v3 or kimi_k2
  std::string tensor_prefix;  // "" or "language_model."

  int64_t vocab_size = 0;
  int64_t hidden_size = 0;
  int layers = 0;
  int64_t max_position_embeddings = 0;
  float rms_norm_eps = 0;
  bool tie_word_embeddings = false;

  int64_t heads = 0;
  int64_t q_lora_rank = 0;  // 0: queries come from q_proj directly
  int64_t kv_lora_rank = 0;
  int64_t qk_nope_head_dim = 0;
  int64_t qk_rope_head_dim = 0;  // even
  int64_t v_head_dim = 0;
  double rope_theta = 0;
  bool rope_interleave = true;
  std::optional<YarnScaling> yarn;

  int64_t intermediate_size = 0;  // of dense layers
  int first_k_dense_replace = 0;
  int moe_layer_freq = 1;
  int64_t routed_experts = 0;
  int64_t experts_per_token = 0;
  int64_t shared_experts = 0;  // stored as one MLP of their joint width
  int64_t moe_intermediate_size = 0;
  RouteMethod route_method =
      RouteMethod::kNoauxTc;  // implies the scoring: sigmoid for noaux_tc, else softmax
  int groups = 1;
  int kept_groups = 1;
  bool norm_topk_prob = false;
  float routed_scaling_factor = 1;

  std::vector<int32_t> eos_ids;  // of config.json and generation_config.json together, ascending
  std::optional<int32_t> bos_id;
  DefaultSampling default_sampling;

  int64_t latent_row() const { return kv_lora_rank + qk_rope_head_dim; }
  int64_t shared_width() const { return shared_experts * moe_intermediate_size; }
  bool IsMoe(int layer) const { return layer >= first_k_dense_replace && layer % moe_layer_freq == 0; }
};

// Reads config.json and, if there is one, generation_config.json. An error names file, key, value and what is
// supported.
absl::StatusOr<ModelConfig> ReadModelConfig(const std::string& directory);

}  // namespace arborist::verifier
