#pragma once

#include <cstdint>

// Row versions of exact_math.h, one for each instruction set.
namespace arborist::kernels {
namespace portable {
void GumbelRowLanes(uint64_t seed, uint32_t sample_index, int32_t position, int32_t first_v, int64_t count,
                    float* out);
void ExpRowLanes(const float* x, float shift, int64_t count, float* out);
}  // namespace portable
namespace avx2 {
void GumbelRowLanes(uint64_t seed, uint32_t sample_index, int32_t position, int32_t first_v, int64_t count,
                    float* out);
void ExpRowLanes(const float* x, float shift, int64_t count, float* out);
}  // namespace avx2
namespace avx512 {
void GumbelRowLanes(uint64_t seed, uint32_t sample_index, int32_t position, int32_t first_v, int64_t count,
                    float* out);
void ExpRowLanes(const float* x, float shift, int64_t count, float* out);
}  // namespace avx512
}  // namespace arborist::kernels
