#include "drafter/model/dflash_config.h"

#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/json/json.h"
#include "common/projection/projection.h"
#include "drafter/model/unsupported_keys.h"

namespace arborist::drafter {
namespace {

constexpr int64_t kMaxWidth = 1 << 20;
constexpr int64_t kMaxLayers = 1024;
constexpr int64_t kMaxBlock = 256;
constexpr int64_t kMaxPositions = 1 << 24;
constexpr double kSmallestPositive = 1e-30;  // well inside a float

absl::StatusOr<int64_t> IntIn(const JsonObject& object, const std::string& key, int64_t low, int64_t high) {
  ASSIGN_OR_RETURN(const int64_t value, object.Int(key));
  if (value < low || value > high) {
    return object.Unexpected(key, absl::StrCat("an integer from ", low, " to ", high));
  }
  return value;
}

absl::StatusOr<double> PositiveOr(const JsonObject& object, const std::string& key, double fallback) {
  ASSIGN_OR_RETURN(const double value, object.NumberOr(key, fallback));
  if (!(value >= kSmallestPositive && value < 1e12)) {
    return object.Unexpected(key, "a positive number (from 1e-30 to 1e12)");
  }
  return value;
}

double YarnMagnitude(double factor, double mscale) {
  return factor > 1 ? 0.1 * mscale * std::log(factor) + 1.0 : 1.0;
}

// Above 1: YaRN divides by its logarithm.
absl::StatusOr<double> ThetaOr(const JsonObject& object, double fallback) {
  ASSIGN_OR_RETURN(const double value, PositiveOr(object, "rope_theta", fallback));
  if (!(value > 1)) {
    return object.Unexpected("rope_theta", "a number above 1");
  }
  return value;
}

// attention_factor if given; else the quotient of both mscale keys if neither is missing or 0; else m(1).
absl::StatusOr<double> AttentionFactor(const JsonObject& scaling, double factor) {
  if (scaling.Has("attention_factor")) {
    return PositiveOr(scaling, "attention_factor", 1);
  }
  ASSIGN_OR_RETURN(const double mscale, scaling.NumberOr("mscale", 0));
  ASSIGN_OR_RETURN(const double mscale_all_dim, scaling.NumberOr("mscale_all_dim", 0));
  if (mscale != 0 && mscale_all_dim != 0) {
    const double quotient = YarnMagnitude(factor, mscale) / YarnMagnitude(factor, mscale_all_dim);
    if (!(quotient >= kSmallestPositive && quotient < 1e12)) {
      return scaling.Unexpected("mscale",
                                absl::StrCat("one that makes attention_factor positive, not ", quotient));
    }
    return quotient;
  }
  return YarnMagnitude(factor, 1);
}

absl::Status ReadYarn(const JsonObject& scaling, RotarySettings& rotary) {
  rotary.yarn = true;
  ASSIGN_OR_RETURN(rotary.factor, scaling.Number("factor"));
  if (!(rotary.factor >= 1 && rotary.factor < 1e9)) {
    return scaling.Unexpected("factor", "a number >= 1");
  }
  ASSIGN_OR_RETURN(rotary.original_positions,
                   IntIn(scaling, "original_max_position_embeddings", 1, kMaxPositions));
  ASSIGN_OR_RETURN(rotary.beta_fast, PositiveOr(scaling, "beta_fast", 32));
  ASSIGN_OR_RETURN(rotary.beta_slow, PositiveOr(scaling, "beta_slow", 1));
  ASSIGN_OR_RETURN(const bool truncate, scaling.BoolOr("truncate", true));
  if (!truncate) {
    return scaling.Unexpected("truncate", "true");
  }
  ASSIGN_OR_RETURN(rotary.attention_factor, AttentionFactor(scaling, rotary.factor));
  return absl::OkStatus();
}

// Either spelling: rope_parameters holds theta too, rope_scaling stands beside rope_theta.
absl::StatusOr<RotarySettings> ReadRotary(const JsonObject& config) {
  RotarySettings rotary;
  ASSIGN_OR_RETURN(rotary.theta, ThetaOr(config, 10000));
  const char* key = config.Has("rope_parameters") ? "rope_parameters" : "rope_scaling";
  if (!config.Has(key)) {
    return rotary;
  }
  ASSIGN_OR_RETURN(const JsonObject scaling, config.Object(key));
  ASSIGN_OR_RETURN(rotary.theta, ThetaOr(scaling, rotary.theta));
  const char* type_key = scaling.Has("rope_type") ? "rope_type" : "type";
  ASSIGN_OR_RETURN(const std::string type, scaling.StringOr(type_key, "default"));
  ASSIGN_OR_RETURN(const double partial, scaling.NumberOr("partial_rotary_factor", 1));
  if (partial != 1) {
    return scaling.Unexpected("partial_rotary_factor", "1: the whole head is rotated");
  }
  if (type == "yarn") {
    RETURN_IF_ERROR(ReadYarn(scaling, rotary));
  } else if (type != "default") {
    return scaling.Unexpected(type_key, "default or yarn");
  }
  return rotary;
}

// is_causal, else dflash_config.causal, else: sliding layers are, full ones are not.
absl::StatusOr<std::vector<LayerVisibility>> ReadLayers(const JsonObject& config, const JsonObject& dflash) {
  ASSIGN_OR_RETURN(const int64_t count, IntIn(config, "num_hidden_layers", 1, kMaxLayers));
  std::vector<std::string> types(count, "full_attention");
  ASSIGN_OR_RETURN(const bool use_sliding, config.BoolOr("use_sliding_window", config.Has("layer_types")));
  if (config.Has("layer_types")) {
    ASSIGN_OR_RETURN(types, config.StringList("layer_types"));
    if (static_cast<int64_t>(types.size()) != count) {
      return config.Unexpected("layer_types", absl::StrCat(count, " entries, one a layer"));
    }
  } else if (use_sliding) {
    return config.Unexpected("use_sliding_window", "false without layer_types");
  }
  std::vector<LayerVisibility> layers(count);
  for (int64_t i = 0; i < count; ++i) {
    const bool sliding = types[i] == "sliding_attention";
    if (!sliding && types[i] != "full_attention") {
      return config.Unexpected("layer_types", "full_attention and sliding_attention");
    }
    if (sliding && !use_sliding) {
      return config.Unexpected("use_sliding_window", "true with sliding layers in layer_types");
    }
    if (sliding) {
      ASSIGN_OR_RETURN(const int64_t window, IntIn(config, "sliding_window", 1, kMaxPositions));
      layers[i].window = static_cast<int32_t>(window);
    }
    layers[i].causal = sliding;
    if (config.Has("is_causal")) {
      ASSIGN_OR_RETURN(layers[i].causal, config.Bool("is_causal"));
    } else if (dflash.Has("causal")) {
      ASSIGN_OR_RETURN(layers[i].causal, dflash.Bool("causal"));
    }
  }
  return layers;
}

absl::Status ReadSizes(const JsonObject& config, DFlashSettings& settings) {
  ASSIGN_OR_RETURN(settings.vocabulary, IntIn(config, "vocab_size", 1, std::numeric_limits<int32_t>::max()));
  ASSIGN_OR_RETURN(settings.hidden, IntIn(config, "hidden_size", 1, kMaxWidth));
  ASSIGN_OR_RETURN(settings.intermediate, IntIn(config, "intermediate_size", 1, kMaxWidth));
  ASSIGN_OR_RETURN(settings.heads, IntIn(config, "num_attention_heads", 1, kMaxWidth));
  ASSIGN_OR_RETURN(settings.kv_heads, config.IntOr("num_key_value_heads", settings.heads));
  if (settings.kv_heads < 1 || settings.heads % settings.kv_heads != 0) {
    return config.Unexpected("num_key_value_heads",
                             absl::StrCat("a divisor of num_attention_heads=", settings.heads));
  }
  ASSIGN_OR_RETURN(settings.head_dim, config.IntOr("head_dim", settings.hidden / settings.heads));
  if (settings.head_dim < 2 || settings.head_dim % 2 != 0 || settings.head_dim > kMaxWidth) {
    return config.Unexpected("head_dim", absl::StrCat("an even number from 2 to ", kMaxWidth));
  }
  ASSIGN_OR_RETURN(const double epsilon, config.Number("rms_norm_eps"));
  if (!(epsilon >= kSmallestPositive && epsilon < 1)) {
    return config.Unexpected("rms_norm_eps", "a number in (0, 1) of at least 1e-30");
  }
  settings.epsilon = static_cast<float>(epsilon);
  ASSIGN_OR_RETURN(const int64_t positions, IntIn(config, "max_position_embeddings", 1, kMaxPositions));
  settings.max_positions = static_cast<int32_t>(positions);
  settings.attention_scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(settings.head_dim)));
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<DFlashSettings> ReadDFlashConfig(const std::string& directory) {
  ASSIGN_OR_RETURN(const JsonObject config, ReadJson(absl::StrCat(directory, "/config.json")));
  RETURN_IF_ERROR(RefuseUnsupportedKeys(config));
  ASSIGN_OR_RETURN(const JsonObject dflash, config.Object("dflash_config"));
  DFlashSettings settings;
  RETURN_IF_ERROR(ReadSizes(config, settings));
  ASSIGN_OR_RETURN(const int64_t block,
                   IntIn(config.Has("block_size") ? config : dflash, "block_size", 2, kMaxBlock));
  settings.block = static_cast<int32_t>(block);
  ASSIGN_OR_RETURN(const int64_t mask, IntIn(dflash, "mask_token_id", 0, settings.vocabulary - 1));
  settings.mask_token = static_cast<int32_t>(mask);
  ASSIGN_OR_RETURN(settings.taps, TargetLayerIds(config));
  ASSIGN_OR_RETURN(settings.layers, ReadLayers(config, dflash));
  ASSIGN_OR_RETURN(settings.rotary, ReadRotary(config));
  return settings;
}

}  // namespace arborist::drafter
