#pragma once

#include <bit>
#include <cstdint>

#include "kernels/logit_controls/logit_controls.h"

namespace arborist::kernels {

// The scalar steps that every backend shares, so that choices are equal bit for bit. constexpr: device code
// too.

constexpr bool IsFiniteLogit(float value) {
  return (std::bit_cast<uint32_t>(value) & 0x7f800000u) != 0x7f800000u;
}

constexpr float MaskedLogit(float raw, bool allowed) {
  return allowed || !IsFiniteLogit(raw) ? raw : kForbiddenLogit;
}

constexpr bool IsAllowed(const uint32_t* mask, int64_t token) {
  return mask == nullptr || ((mask[token / 32] >> (token % 32)) & 1u) != 0;
}

// Bias, then the penalties. Every step is rounded by itself.
constexpr float ControlledLogit(float raw, bool allowed, const LogitEntry& entry,
                                const SequenceControls& controls) {
  if (!IsFiniteLogit(raw)) {
    return raw;
  }
  if (!allowed || entry.forbidden != 0) {
    return kForbiddenLogit;
  }
  float value = raw + entry.bias;
  if (entry.occurred != 0) {
    value = value > 0 ? value / controls.repetition : value * controls.repetition;
  }
  if (entry.output_count > 0) {
    value -= controls.presence + controls.frequency * static_cast<float>(entry.output_count);
  }
  value = value < kControlledLogitMax ? value : kControlledLogitMax;
  return value > -kControlledLogitMax ? value : -kControlledLogitMax;
}

}  // namespace arborist::kernels
