#include "drafter/model/unsupported_keys.h"

#include <google/protobuf/struct.pb.h>

#include <string>
#include <vector>

#include "common/base/status_macros.h"

namespace arborist::drafter {
namespace {

using google::protobuf::Value;

struct Refusal {
  const char* key;
  const char* expectation;
};

// Must be missing, null, false or 0.
constexpr Refusal kMustBeOff[] = {
    {"conv_kernel_size", "no such key: DFlash2's convolution is not supported, DFlash is"},
    {"conv_group_size", "no such key: DFlash2's convolution is not supported, DFlash is"},
    {"selector_rank", "no such key: DFlash2's candidate selector is not supported, DFlash is"},
    {"selector_top_k", "no such key: DFlash2's candidate selector is not supported, DFlash is"},
    {"causal_head", "false: causal heads are not supported, blocks that see themselves in full are"},
    {"final_logit_softcapping", "null: capped logits are not supported"},
    {"mask_embedding", "no such key: the mask token's row of the target's embedding is used"},
    {"mask_embedding_path", "no such key: the mask token's row of the target's embedding is used"},
    {"attention_bias", "false: projections without bias are supported"},
    {"mlp_bias", "false: projections without bias are supported"},
    {"use_swa", "false: sliding layers are supported through layer_types and sliding_window"},
    {"swa_window_size", "no such key: sliding layers are supported through layer_types and sliding_window"},
    {"fc_norm", "false: one hidden_norm after fc is supported"},
    {"rope_interleave", "false: rotary pairs (i, i + head_dim / 2) are supported"},
    {"quantization_config", "no such key: F32, BF16 and F16 weights are supported"},
    {"num_experts", "no such key: dense MLPs are supported"},
    {"n_routed_experts", "no such key: dense MLPs are supported"},
    {"kv_lora_rank", "no such key: MLA drafters are not supported, GQA and MHA are"},
};

// Must be missing, null or 1.
constexpr Refusal kMustBeOne[] = {
    {"input_embedding_scale", "1: scaled embeddings are not supported"},
    {"output_multiplier", "1: scaled logits are not supported"},
    {"partial_rotary_factor", "1: the whole head is rotated"},
};

bool IsOff(const Value& value) {
  switch (value.kind_case()) {
    case Value::kNullValue:
      return true;
    case Value::kBoolValue:
      return !value.bool_value();
    case Value::kNumberValue:
      return value.number_value() == 0;
    default:
      return false;
  }
}

bool IsOne(const Value& value) {
  return value.kind_case() == Value::kNullValue ||
         (value.kind_case() == Value::kNumberValue && value.number_value() == 1);
}

absl::Status RefuseModes(const JsonObject& object) {
  std::vector<std::string> modes;
  const char* key = "attention_mode";
  if (object.Has(key)) {
    ASSIGN_OR_RETURN(const std::string mode, object.String(key));
    modes = {mode};
  } else if (object.Has("attention_modes")) {
    key = "attention_modes";
    ASSIGN_OR_RETURN(modes, object.StringList(key));
  }
  for (const std::string& mode : modes) {
    if (mode != "gqa" && mode != "mha") {
      return object.Unexpected(key, "gqa or mha");
    }
  }
  return absl::OkStatus();
}

absl::Status RefuseIn(const JsonObject& object) {
  const auto& fields = object.fields().fields();
  for (const Refusal& refusal : kMustBeOff) {
    const auto found = fields.find(refusal.key);
    if (found != fields.end() && !IsOff(found->second)) {
      return object.Unexpected(refusal.key, refusal.expectation);
    }
  }
  for (const Refusal& refusal : kMustBeOne) {
    const auto found = fields.find(refusal.key);
    if (found != fields.end() && !IsOne(found->second)) {
      return object.Unexpected(refusal.key, refusal.expectation);
    }
  }
  return RefuseModes(object);
}

}  // namespace

absl::Status RefuseUnsupportedKeys(const JsonObject& config) {
  RETURN_IF_ERROR(RefuseIn(config));
  ASSIGN_OR_RETURN(const std::string activation, config.StringOr("hidden_act", "silu"));
  if (activation != "silu") {
    return config.Unexpected("hidden_act", "silu");
  }
  if (config.Has("architectures")) {
    ASSIGN_OR_RETURN(const std::vector<std::string> names, config.StringList("architectures"));
    if (names != std::vector<std::string>{"DFlashDraftModel"}) {
      return config.Unexpected("architectures", "[\"DFlashDraftModel\"]");
    }
  }
  if (!config.Has("dflash_config")) {
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(const JsonObject dflash, config.Object("dflash_config"));
  return RefuseIn(dflash);
}

}  // namespace arborist::drafter
