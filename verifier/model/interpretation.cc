#include "verifier/model/interpretation.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "common/base/status_macros.h"

namespace arborist::verifier {
namespace {

// transformers builds q_a_layernorm and kv_a_layernorm without the configured epsilon.
constexpr float kLatentEpsilon = 1e-6f;

double YarnMagnitude(double factor, double mscale) {
  return factor <= 1 ? 1 : 0.1 * mscale * std::log(factor) + 1;
}

double RopeMagnitude(const YarnScaling& yarn) {
  if (yarn.attention_factor) {
    return *yarn.attention_factor;
  }
  if (yarn.mscale != 0 && yarn.mscale_all_dim != 0) {
    return YarnMagnitude(yarn.factor, yarn.mscale) / YarnMagnitude(yarn.factor, yarn.mscale_all_dim);
  }
  return YarnMagnitude(yarn.factor, 1);
}

}  // namespace

std::vector<double> RopeFrequencies(int64_t dim, double theta, const std::optional<YarnScaling>& yarn) {
  std::vector<double> frequency(static_cast<size_t>(dim / 2));
  for (int64_t i = 0; i < dim / 2; ++i) {
    frequency[i] = std::pow(theta, -2.0 * static_cast<double>(i) / static_cast<double>(dim));
  }
  if (!yarn) {
    return frequency;
  }
  // The index of the pair that turns `turns` times over the original context.
  const auto index_of_turns = [&](double turns) {
    const double context = static_cast<double>(yarn->original_max_position_embeddings);
    return static_cast<double>(dim) * std::log(context / (2 * std::numbers::pi * turns)) /
           (2 * std::log(theta));
  };
  const double low = std::max(std::floor(index_of_turns(yarn->beta_fast)), 0.0);
  double high = std::min(std::ceil(index_of_turns(yarn->beta_slow)), static_cast<double>(dim - 1));
  if (low == high) {
    high += 0.001;
  }
  for (int64_t i = 0; i < dim / 2; ++i) {
    const double ramp = std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0);
    frequency[i] = frequency[i] * (1 - ramp) + frequency[i] / yarn->factor * ramp;
  }
  return frequency;
}

Interpretation Interpret(const ModelConfig& config) {
  Interpretation meaning;
  double scale = 1 / std::sqrt(static_cast<double>(config.qk_nope_head_dim + config.qk_rope_head_dim));
  if (config.yarn && config.yarn->mscale_all_dim != 0) {
    const double magnitude = YarnMagnitude(config.yarn->factor, config.yarn->mscale_all_dim);
    scale *= magnitude * magnitude;
  }
  meaning.softmax_scale = static_cast<float>(scale);
  meaning.layer_epsilon = config.rms_norm_eps;
  meaning.latent_epsilon = kLatentEpsilon;
  meaning.rope_frequency = RopeFrequencies(config.qk_rope_head_dim, config.rope_theta, config.yarn);
  meaning.rope_magnitude = config.yarn ? RopeMagnitude(*config.yarn) : 1;
  meaning.rope_pairing =
      config.rope_interleave ? kernels::RopePairing::kInterleaved : kernels::RopePairing::kHalfSplit;
  const bool noaux = config.route_method == RouteMethod::kNoauxTc;
  meaning.scoring = noaux ? kernels::RouteScoring::kSigmoid : kernels::RouteScoring::kSoftmax;
  meaning.group_score = noaux ? kernels::RouteGroupScore::kTopTwoSum : kernels::RouteGroupScore::kMax;
  meaning.groups = config.groups;
  meaning.kept_groups = config.kept_groups;
  meaning.correction_bias = noaux;
  meaning.normalize = config.norm_topk_prob;
  meaning.routed_scaling = config.routed_scaling_factor;
  return meaning;
}

absl::StatusOr<RopeTables> RopeTables::Create(const Interpretation& interpretation, int64_t positions,
                                              Device& device) {
  RopeTables tables;
  tables.positions_ = positions;
  tables.pairs_ = static_cast<int64_t>(interpretation.rope_frequency.size());
  std::vector<float> cosine(static_cast<size_t>(positions * tables.pairs_));
  std::vector<float> sine(cosine.size());
  for (int64_t position = 0; position < positions; ++position) {
    for (int64_t pair = 0; pair < tables.pairs_; ++pair) {
      const double angle = static_cast<double>(position) * interpretation.rope_frequency[pair];
      const int64_t at = position * tables.pairs_ + pair;
      cosine[at] = static_cast<float>(std::cos(angle) * interpretation.rope_magnitude);
      sine[at] = static_cast<float>(std::sin(angle) * interpretation.rope_magnitude);
    }
  }
  const size_t bytes = cosine.size() * sizeof(float);
  ASSIGN_OR_RETURN(tables.cosine_, device.Allocate(bytes, "rotary tables"));
  ASSIGN_OR_RETURN(tables.sine_, device.Allocate(bytes, "rotary tables"));
  RETURN_IF_ERROR(device.Copy(tables.cosine_.data(), cosine.data(), bytes));
  RETURN_IF_ERROR(device.Copy(tables.sine_.data(), sine.data(), bytes));
  RETURN_IF_ERROR(device.Synchronize());
  return tables;
}

}  // namespace arborist::verifier
