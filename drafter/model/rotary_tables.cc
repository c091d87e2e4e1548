#include "drafter/model/rotary_tables.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace arborist::drafter {

std::vector<double> RotaryFrequencies(const RotarySettings& settings, int64_t head_dim) {
  const int64_t half = head_dim / 2;
  const double dim = static_cast<double>(head_dim);
  std::vector<double> frequency(half);
  for (int64_t i = 0; i < half; ++i) {
    frequency[i] = std::pow(settings.theta, -2.0 * static_cast<double>(i) / dim);
  }
  if (!settings.yarn) {
    return frequency;
  }
  // The pair whose wave turns `rotations` times over the positions of training.
  const auto pair_of = [&](double rotations) {
    return dim *
           std::log(static_cast<double>(settings.original_positions) / (rotations * 2 * std::numbers::pi)) /
           (2 * std::log(settings.theta));
  };
  const double low = std::max(std::floor(pair_of(settings.beta_fast)), 0.0);
  const double high = std::min(std::ceil(pair_of(settings.beta_slow)), dim - 1);
  const double width = high != low ? high - low : 0.001;
  for (int64_t i = 0; i < half; ++i) {
    const double slow = std::clamp((static_cast<double>(i) - low) / width, 0.0, 1.0);
    frequency[i] = frequency[i] * (1 - slow) + frequency[i] / settings.factor * slow;
  }
  return frequency;
}

RotaryTables::RotaryTables(const RotarySettings& settings, int64_t head_dim, int64_t positions)
    : positions_(positions), half_(head_dim / 2), cosine_(positions_ * half_), sine_(positions_ * half_) {
  const std::vector<double> frequency = RotaryFrequencies(settings, head_dim);
  for (int64_t position = 0; position < positions; ++position) {
    for (int64_t i = 0; i < half_; ++i) {
      const double angle = static_cast<double>(position) * frequency[i];
      cosine_[position * half_ + i] = static_cast<float>(std::cos(angle) * settings.attention_factor);
      sine_[position * half_ + i] = static_cast<float>(std::sin(angle) * settings.attention_factor);
    }
  }
}

}  // namespace arborist::drafter
