#pragma once

#include <cstdint>

namespace arborist::kernels {

namespace portable {
void SiluMulRow(const float* gate, const float* up, float* out, int64_t columns);
}
namespace avx2 {
void SiluMulRow(const float* gate, const float* up, float* out, int64_t columns);
}
namespace avx512 {
void SiluMulRow(const float* gate, const float* up, float* out, int64_t columns);
}

// For the active instruction set.
void SiluMulRow(const float* gate, const float* up, float* out, int64_t columns);

}  // namespace arborist::kernels
