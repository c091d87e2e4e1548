#pragma once

#include <cstdint>

namespace arborist::kernels {

// One vector of 2 * half elements. Interleaved: pairs (2i, 2i+1); else pairs (i, i + half).
namespace portable {
void RopeVector(float* x, const float* cosine, const float* sine, int64_t half, bool interleaved);
}
namespace avx2 {
void RopeVector(float* x, const float* cosine, const float* sine, int64_t half, bool interleaved);
}
namespace avx512 {
void RopeVector(float* x, const float* cosine, const float* sine, int64_t half, bool interleaved);
}

}  // namespace arborist::kernels
