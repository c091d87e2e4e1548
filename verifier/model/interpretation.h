#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "common/device/device.h"
#include "common/tensor/view.h"
#include "kernels/moe_route/moe_route.h"
#include "kernels/rope/rope.h"
#include "verifier/model/model_config.h"

namespace arborist::verifier {

// What the config means: every number that the forward pass uses and that is easy to get wrong, derived in
// one place. Tests alter a field to show that the golden data would notice.
struct Interpretation {
  float softmax_scale = 0;   // (nope + rope)^-0.5, times the YaRN magnitude of mscale_all_dim squared
  float layer_epsilon = 0;   // of input, post-attention and final norm
  float latent_epsilon = 0;  // of q_a and kv_a norm: always 1e-6, whatever rms_norm_eps says

  std::vector<double> rope_frequency;  // [rope / 2] radians a position
  double rope_magnitude = 1;           // factor of cosine and sine
  kernels::RopePairing rope_pairing = kernels::RopePairing::kInterleaved;

  kernels::RouteScoring scoring = kernels::RouteScoring::kSigmoid;
  kernels::RouteGroupScore group_score = kernels::RouteGroupScore::kTopTwoSum;
  int groups = 1;
  int kept_groups = 1;
  bool correction_bias = false;  // e_score_correction_bias takes part in the choice
  bool normalize = false;
  float routed_scaling = 1;
};

Interpretation Interpret(const ModelConfig& config);

// YaRN's frequencies (or the plain ones without scaling) for `dim` rotary elements.
std::vector<double> RopeFrequencies(int64_t dim, double theta, const std::optional<YarnScaling>& yarn);

// Cosine and sine of every position, computed in double and rounded once, in the device's memory.
class RopeTables {
 public:
  static absl::StatusOr<RopeTables> Create(const Interpretation& interpretation, int64_t positions,
                                           Device& device);
  View2<const float> cosine() const { return View(cosine_); }
  View2<const float> sine() const { return View(sine_); }

 private:
  RopeTables() = default;
  View2<const float> View(const DeviceMemory& table) const {
    return {table.As<const float>(), positions_, pairs_, pairs_};
  }

  int64_t positions_ = 0;
  int64_t pairs_ = 0;
  DeviceMemory cosine_;
  DeviceMemory sine_;
};

}  // namespace arborist::verifier
