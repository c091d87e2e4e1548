// config.json and generation_config.json (0xFF between them) as both readers of models see them. What is
// accepted must be what the models' sizes and kernels rely on.
#include <algorithm>
#include <cmath>

#include "common/base/check.h"
#include "drafter/model/dflash_config.h"
#include "tests/fuzz/fuzz_input.h"
#include "tests/fuzz/scratch_folder.h"
#include "verifier/model/interpretation.h"
#include "verifier/model/model_config.h"

namespace arborist {
namespace {

bool IsUsable(double value) { return std::isfinite(value) && value > 0; }

void CheckTarget(const verifier::ModelConfig& config) {
  for (const int64_t size :
       {config.vocab_size, config.hidden_size, int64_t{config.layers}, config.max_position_embeddings,
        config.heads, config.kv_lora_rank, config.qk_nope_head_dim, config.qk_rope_head_dim,
        config.v_head_dim, config.intermediate_size, int64_t{config.moe_layer_freq}, config.routed_experts,
        config.experts_per_token, config.moe_intermediate_size, int64_t{config.groups},
        int64_t{config.kept_groups}}) {
    Check(size >= 1 && size <= INT32_MAX, "sizes are positive and fit");
  }
  Check(config.q_lora_rank >= 0 && config.shared_experts >= 0 && config.first_k_dense_replace >= 0, "sizes");
  Check(config.qk_rope_head_dim % 2 == 0 && config.routed_experts % config.groups == 0, "divisible sizes");
  Check(config.experts_per_token <= config.routed_experts / config.groups * config.kept_groups, "experts");
  Check(
      IsUsable(config.rms_norm_eps) && IsUsable(config.rope_theta) && IsUsable(config.routed_scaling_factor),
      "numbers that are divided by are positive and finite");
  if (config.yarn.has_value()) {
    const verifier::YarnScaling& yarn = *config.yarn;
    Check(yarn.factor >= 1 && std::isfinite(yarn.factor) && IsUsable(yarn.beta_fast) &&
              IsUsable(yarn.beta_slow) && IsUsable(yarn.attention_factor.value_or(1)) &&
              yarn.original_max_position_embeddings >= 1,
          "yarn");
  }
  Check(std::is_sorted(config.eos_ids.begin(), config.eos_ids.end()) &&
            std::adjacent_find(config.eos_ids.begin(), config.eos_ids.end()) == config.eos_ids.end(),
        "ids that end the text are ascending");
  for (const int32_t id : config.eos_ids) {
    Check(id >= 0 && id < config.vocab_size, "ids of the vocabulary");
  }
  Check(config.bos_id.value_or(0) >= 0 && config.bos_id.value_or(0) < config.vocab_size, "the first id");
  if (config.qk_rope_head_dim > 4096) {
    return;
  }
  const verifier::Interpretation meaning = verifier::Interpret(config);
  Check(IsUsable(meaning.softmax_scale) && IsUsable(meaning.rope_magnitude) &&
            IsUsable(meaning.layer_epsilon) && IsUsable(meaning.routed_scaling),
        "factors of the forward pass are positive and finite");
  for (const double frequency : meaning.rope_frequency) {
    Check(frequency >= 0 && frequency <= 1, "a frequency is at most a radian a position");
  }
}

void CheckDrafter(const drafter::DFlashSettings& settings) {
  Check(settings.vocabulary >= 1 && settings.hidden >= 1 && settings.intermediate >= 1 && settings.heads >= 1,
        "sizes are positive");
  Check(settings.kv_heads >= 1 && settings.heads % settings.kv_heads == 0 && settings.head_dim % 2 == 0,
        "heads");
  Check(settings.block >= 2 && settings.mask_token >= 0 && settings.mask_token < settings.vocabulary,
        "block");
  Check(!settings.layers.empty() && !settings.taps.empty(), "layers and taps");
  for (const drafter::LayerVisibility& layer : settings.layers) {
    Check(layer.window >= 0, "windows");
  }
  for (const int32_t tap : settings.taps) {
    Check(tap >= 0, "taps");
  }
  const drafter::RotarySettings& rotary = settings.rotary;
  Check(IsUsable(settings.epsilon) && IsUsable(settings.attention_scale) && IsUsable(rotary.theta) &&
            IsUsable(rotary.factor) && IsUsable(rotary.attention_factor) && IsUsable(rotary.beta_fast) &&
            IsUsable(rotary.beta_slow),
        "numbers that are divided by are positive and finite");
  Check(!rotary.yarn || rotary.original_positions >= 1, "yarn");
}

}  // namespace
}  // namespace arborist

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace arborist;
  static const fuzz::ScratchFolder folder;
  fuzz::FuzzInput input(data, size);
  folder.Write("config.json", input.Until('\xFF'));
  if (input.empty()) {
    folder.Remove("generation_config.json");
  } else {
    folder.Write("generation_config.json", input.rest());
  }
  if (const auto config = verifier::ReadModelConfig(folder.path()); config.ok()) {
    CheckTarget(*config);
  }
  if (const auto settings = drafter::ReadDFlashConfig(folder.path()); settings.ok()) {
    CheckDrafter(*settings);
  }
  return 0;
}
