#pragma once

#include <cuda_runtime.h>

namespace arborist::kernels::cuda {

// 2^x by the device's own instruction: within 2 units of the last place, 0 for what would be subnormal.
__device__ inline float FastExp2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

inline constexpr float kLog2OfE = 1.44269504f;

// sum of exp((x - max) * beta) over some x; max is -infinity where there is none. Sums join in an order that
// the callers fix.
struct ExpSum {
  float max;
  float sum;
};

// scale = beta * log2(e).
__device__ inline float Rescaled(const ExpSum& part, float max, float scale) {
  return part.sum == 0.0f ? 0.0f : part.sum * FastExp2((part.max - max) * scale);
}
__device__ inline ExpSum Join(const ExpSum& a, const ExpSum& b, float scale) {
  const float max = fmaxf(a.max, b.max);
  return {max, Rescaled(a, max, scale) + Rescaled(b, max, scale)};
}

// In lane 0: the lanes' sums joined in a fixed tree. All lanes call it.
__device__ inline ExpSum JoinWarp(ExpSum own, float scale) {
  for (int offset = 16; offset > 0; offset /= 2) {
    const ExpSum other = {__shfl_down_sync(0xffffffffu, own.max, static_cast<unsigned>(offset)),
                          __shfl_down_sync(0xffffffffu, own.sum, static_cast<unsigned>(offset))};
    own = Join(own, other, scale);
  }
  return own;
}

}  // namespace arborist::kernels::cuda
