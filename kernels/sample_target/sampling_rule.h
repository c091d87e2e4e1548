#pragma once

#include <cmath>
#include <cstdint>

#include "absl/status/status.h"
#include "common/base/math.h"
#include "kernels/sample_target/sample_target.h"
#include "kernels/vocabulary_row/order_key.h"

namespace arborist::kernels {

// The scalar steps that every backend shares, so that ids are equal.

// Weights exp(y) lie in [0, 1]; a mass is their 2^40-fold, cut to an integer. A sum over 2^23 ids fits.
inline constexpr int kMassBits = 40;
inline constexpr int64_t kMaxVocabulary = int64_t{1} << 23;

constexpr uint64_t Mass(float weight) {
  return static_cast<uint64_t>(weight * static_cast<float>(uint64_t{1} << kMassBits));
}

// The least mass of a top-p set: ceil(total * p), p in units of 2^-24 rounded up. total <= 2^63.
constexpr uint64_t NeededMass(uint64_t total, float top_p) {
  const auto p = static_cast<uint64_t>(std::ceil(top_p * 16777216.0f));
  const uint64_t high = total >> 24;
  const uint64_t low = total & 0xffffffu;
  return high * p + ((low * p + 0xffffffu) >> 24);
}

// Working memory of one thread: y, weights, two lists of ids and a histogram.
inline constexpr int64_t kHistogramBins = 2048;
constexpr int64_t SamplingScratchBytes(int64_t vocabulary) {
  return 4 * RoundUp(vocabulary * 4, 64) + kHistogramBins * 8;
}

// Internal, naming row and id of the first logit that is not finite; OK if there is none.
absl::Status NonFiniteLogit(const SampleTargetArgs& args, int64_t row);

// What the outputs of a row with a non-finite logit hold.
void ReportBrokenRow(const SampleTargetArgs& args, int64_t row);

// Whether anything but noise decides.
constexpr bool Truncates(const SamplingParams& params, int64_t vocabulary) {
  return (params.top_k > 0 && params.top_k < vocabulary) || params.top_p < 1 || params.min_p > 0;
}

}  // namespace arborist::kernels
