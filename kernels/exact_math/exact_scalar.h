#pragma once

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>

namespace arborist::kernels {

// The operation sequences of exact_math.h, inline: every implementation is this text or mirrors it line by
// line (exact_lanes.h). constexpr, so that CUDA device code calls them too (nvcc: --expt-relaxed-constexpr);
// the steps are IEEE operations there as well (no contraction, no flush to zero, correct division), so bits
// agree. Constants are Cody-Waite splits and Cephes-style minimax polynomials.

inline constexpr float kExpLow = -87.3f;
inline constexpr float kExpHigh = 88.7f;
inline constexpr float kLog2E = 1.44269504f;
inline constexpr float kLn2High = 0.693359375f;  // 9 bits: products with whole numbers are exact
inline constexpr float kLn2Low = -2.12194440e-4f;
inline constexpr float kRoundMagic =
    12582912.0f;  // 1.5 * 2^23: adding and subtracting it rounds to a whole number

constexpr std::array<float, 6> ExpCoefficients() {
  return {1.9875691500e-4f, 1.3981999507e-3f, 8.3334519073e-3f,
          4.1665795894e-2f, 1.6666665459e-1f, 5.0000001201e-1f};
}
constexpr std::array<float, 9> LogCoefficients() {
  return {7.0376836292e-2f,  -1.1514610310e-1f, 1.1676998740e-1f,  -1.2420140846e-1f, 1.4249322787e-1f,
          -1.6668057665e-1f, 2.0000714765e-1f,  -2.4999993993e-1f, 3.3333331174e-1f};
}

// 2^whole for a whole number in [-126, 127].
constexpr float PowerOfTwo(float whole) {
  return std::bit_cast<float>(static_cast<uint32_t>(static_cast<int32_t>(whole) + 127) << 23);
}

constexpr float ExpInline(float x) {
  const float n = (x * kLog2E + kRoundMagic) - kRoundMagic;
  float r = std::fma(-n, kLn2High, x);
  r = std::fma(-n, kLn2Low, r);
  constexpr std::array<float, 6> kCoefficient = ExpCoefficients();
  float p = std::fma(kCoefficient[0], r, kCoefficient[1]);
  p = std::fma(p, r, kCoefficient[2]);
  p = std::fma(p, r, kCoefficient[3]);
  p = std::fma(p, r, kCoefficient[4]);
  p = std::fma(p, r, kCoefficient[5]);
  const float y = std::fma(p, r * r, r) + 1.0f;
  // 2^n in two steps, since n = 128 has no float of its own.
  const float half = std::fma(n, 0.5f, kRoundMagic) - kRoundMagic;
  if (!(x >= kExpLow)) {
    return x < kExpLow ? 0.0f : x;  // NaN stays NaN
  }
  if (x > kExpHigh) {
    return std::bit_cast<float>(0x7f800000u);
  }
  return y * PowerOfTwo(half) * PowerOfTwo(n - half);
}

// x positive, finite and normal.
constexpr float LogOfNormal(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  // The mantissa in [sqrt(1/2), sqrt(2)): adding the distance from sqrt(1/2) to 1 carries into the exponent.
  const uint32_t shifted = bits + (0x3f800000u - 0x3f3504f3u);
  const auto exponent = static_cast<float>(static_cast<int32_t>(shifted >> 23) - 127);
  const float m = std::bit_cast<float>((shifted & 0x007fffffu) + 0x3f3504f3u);
  const float f = m - 1.0f;
  // Written out: a loop left here would keep the loops around it from becoming vectors.
  constexpr std::array<float, 9> kCoefficient = LogCoefficients();
  float p = std::fma(kCoefficient[0], f, kCoefficient[1]);
  p = std::fma(p, f, kCoefficient[2]);
  p = std::fma(p, f, kCoefficient[3]);
  p = std::fma(p, f, kCoefficient[4]);
  p = std::fma(p, f, kCoefficient[5]);
  p = std::fma(p, f, kCoefficient[6]);
  p = std::fma(p, f, kCoefficient[7]);
  p = std::fma(p, f, kCoefficient[8]);
  const float square = f * f;
  float y = f * square * p;
  y = std::fma(exponent, kLn2Low, y);
  y = std::fma(square, -0.5f, y);
  return std::fma(exponent, kLn2High, f + y);
}

constexpr void PhiloxInline(uint32_t counter[4], uint32_t key0, uint32_t key1) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t product0 = uint64_t{0xD2511F53u} * counter[0];
    const uint64_t product1 = uint64_t{0xCD9E8D57u} * counter[2];
    counter[0] = static_cast<uint32_t>(product1 >> 32) ^ counter[1] ^ key0;
    counter[1] = static_cast<uint32_t>(product1);
    counter[2] = static_cast<uint32_t>(product0 >> 32) ^ counter[3] ^ key1;
    counter[3] = static_cast<uint32_t>(product0);
    key0 += 0x9E3779B9u;
    key1 += 0xBB67AE85u;
  }
}

constexpr float GumbelOfWord(uint32_t word) {
  const float uncut = (static_cast<float>(word) + 0.5f) * 0x1p-32f;
  const float u = uncut < 1.0f - 0x1p-24f ? uncut : 1.0f - 0x1p-24f;  // words next to 2^32 would round to 1
  // log1p(-u): the logarithm of the rounded 1 - u, and what the rounding lost.
  const float t = 1.0f - u;
  const float lost = -u - (t - 1.0f);
  const float exponential = -(LogOfNormal(t) + lost / t);
  return -LogOfNormal(exponential);
}

// Gumbel of exact_math.h.
constexpr float GumbelInline(uint64_t seed, uint32_t sample_index, int32_t position, int32_t v) {
  uint32_t counter[4] = {static_cast<uint32_t>(v) / 4, static_cast<uint32_t>(position), sample_index, 0};
  PhiloxInline(counter, static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32));
  return GumbelOfWord(counter[v % 4]);
}

}  // namespace arborist::kernels
