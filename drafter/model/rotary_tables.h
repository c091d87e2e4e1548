#pragma once

#include <cstdint>
#include <vector>

#include "common/tensor/view.h"
#include "drafter/model/dflash_config.h"

namespace arborist::drafter {

// Cosine and sine of every position, computed in double and rounded once.
class RotaryTables {
 public:
  RotaryTables(const RotarySettings& settings, int64_t head_dim, int64_t positions);

  View2<const float> cosine() const { return {cosine_.data(), positions_, half_, half_}; }
  View2<const float> sine() const { return {sine_.data(), positions_, half_, half_}; }

 private:
  int64_t positions_;
  int64_t half_;
  std::vector<float> cosine_;  // [positions, head_dim / 2]
  std::vector<float> sine_;
};

// Radians a position, [head_dim / 2]. YaRN keeps the fast ones, divides the slow ones by the factor and
// blends between.
std::vector<double> RotaryFrequencies(const RotarySettings& settings, int64_t head_dim);

}  // namespace arborist::drafter
