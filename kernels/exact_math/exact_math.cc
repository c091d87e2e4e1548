#include "kernels/exact_math/exact_math.h"

#include <cstdint>

#include "common/base/check.h"
#include "kernels/exact_math/exact_lanes.h"
#include "kernels/exact_math/exact_scalar.h"
#include "kernels/simd/isa.h"

namespace arborist::kernels {

float ExactExp(float x) { return ExpInline(x); }

float ExactLog(float x) {
  if (!(x > 0.0f)) {
    return x == 0.0f ? -std::bit_cast<float>(0x7f800000u) : std::bit_cast<float>(0x7fc00000u);
  }
  if (x == std::bit_cast<float>(0x7f800000u)) {
    return x;
  }
  return LogOfNormal(x);
}

std::array<uint32_t, 4> Philox4x32(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key) {
  PhiloxInline(counter.data(), key[0], key[1]);
  return counter;
}

float Gumbel(uint64_t seed, uint32_t sample_index, int32_t position, int32_t v) {
  return GumbelInline(seed, sample_index, position, v);
}

void GumbelRow(uint64_t seed, uint32_t sample_index, int32_t position, int32_t first_v, int64_t count,
               float* out) {
  Check(first_v % 4 == 0 && first_v >= 0, "a row of noise starts at a multiple of 4");
  ForActiveIsa(portable::GumbelRowLanes, avx2::GumbelRowLanes, avx512::GumbelRowLanes)(
      seed, sample_index, position, first_v, count, out);
}

void ExpRow(const float* x, float shift, int64_t count, float* out) {
  ForActiveIsa(portable::ExpRowLanes, avx2::ExpRowLanes, avx512::ExpRowLanes)(x, shift, count, out);
}

}  // namespace arborist::kernels
