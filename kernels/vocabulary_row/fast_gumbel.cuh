#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace arborist::kernels::cuda {

// The steps of GumbelOfWord with the device's own logarithm: noise = -log(exponential variate of u).

// log2 of a normal x: within 2^-21.4 between 1/2 and 2, elsewhere within 3 units of the last place.
__device__ inline float FastLog2(float x) {
  float y;
  asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
inline constexpr float kMinusLn2 = -0.693147181f;

// u itself, to the bit.
__device__ inline float UniformOfWord(uint32_t word) {
  return fminf(fmaf(static_cast<float>(word), 0x1p-32f, 0x1p-33f), 1.0f - 0x1p-24f);
}
// -log(1 - u) within 1.2e-5 of itself.
__device__ inline float ExponentialOfUniform(float u) {
  const float series = u * fmaf(u, fmaf(u, fmaf(u, 0.25f, 1.0f / 3), 0.5f), 1.0f);
  return u < 0x1p-5f ? series : kMinusLn2 * FastLog2(1.0f - u);
}
// y and the noise, which is within 2e-5.
__device__ inline float WithFastGumbel(float y, uint32_t word) {
  return fmaf(kMinusLn2, FastLog2(ExponentialOfUniform(UniformOfWord(word))), y);
}

}  // namespace arborist::kernels::cuda
