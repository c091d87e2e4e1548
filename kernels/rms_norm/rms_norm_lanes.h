#pragma once

#include <cstdint>

namespace arborist::kernels {

// One row: inverse = 1 / sqrt(sum(x^2) / columns + epsilon), out = (x * inverse) * weight.
namespace portable {
void RmsNormRow(const float* x, const float* weight, float* out, int64_t columns, float epsilon);
}
namespace avx2 {
void RmsNormRow(const float* x, const float* weight, float* out, int64_t columns, float epsilon);
}
namespace avx512 {
void RmsNormRow(const float* x, const float* weight, float* out, int64_t columns, float epsilon);
}

}  // namespace arborist::kernels
