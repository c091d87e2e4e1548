#pragma once

#include <cmath>
#include <cstdint>

#include "common/tensor/weight_element.h"
#include "kernels/linear/linear.h"

namespace arborist::kernels::testing {

// The definition of linear.h in scalar steps, bit for bit: 16 lanes over k in [begin, end), joined in the
// fixed tree.
inline float LaneDot(const float* x, const WeightView& weight, int64_t output, int64_t begin, int64_t end) {
  float lane[16] = {};
  for (int64_t k = begin; k < end; k += 16) {
    for (int64_t l = 0; l < 16; ++l) {
      const bool inside = k + l < end;
      lane[l] =
          std::fma(inside ? x[k + l] : 0.0f, inside ? WeightElement(weight, output, k + l) : 0.0f, lane[l]);
    }
  }
  for (int width = 8; width >= 1; width /= 2) {
    for (int l = 0; l < width; ++l) {
      lane[l] += lane[l + width];
    }
  }
  return lane[0];
}

// The balanced tree over neighbours.
inline float JoinNeighbours(const float* p, int count) {
  return count == 1 ? p[0] : JoinNeighbours(p, count / 2) + JoinNeighbours(p + count / 2, count / 2);
}

}  // namespace arborist::kernels::testing
