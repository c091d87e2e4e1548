#include "kernels/rope/rope_lanes.h"

namespace arborist::kernels::ARBORIST_ISA {

void RopeVector(float* x, const float* cosine, const float* sine, int64_t half, bool interleaved) {
  // Plain loops: the compiler finds the vectors, and every step is one rounding that is written out.
  if (interleaved) {
    for (int64_t i = 0; i < half; ++i) {
      const float a = x[2 * i];
      const float b = x[2 * i + 1];
      x[2 * i] = __builtin_fmaf(a, cosine[i], -(b * sine[i]));
      x[2 * i + 1] = __builtin_fmaf(b, cosine[i], a * sine[i]);
    }
    return;
  }
  for (int64_t i = 0; i < half; ++i) {
    const float a = x[i];
    const float b = x[i + half];
    x[i] = __builtin_fmaf(a, cosine[i], -(b * sine[i]));
    x[i + half] = __builtin_fmaf(b, cosine[i], a * sine[i]);
  }
}

}  // namespace arborist::kernels::ARBORIST_ISA
