#pragma once

#include <cstdint>

// Largest element of x (count >= 1); *finite becomes whether all are.
namespace arborist::kernels {
namespace portable {
float MaxOfRow(const float* x, int64_t count, bool* finite);
float SumExpOfRow(const float* x, float shift, float factor, int64_t count);
void ScaleRow(const float* x, float shift, float divisor, int64_t count, float* out);
void AddRows(const float* x, const float* y, int64_t count, float* out);
}  // namespace portable
namespace avx2 {
float MaxOfRow(const float* x, int64_t count, bool* finite);
float SumExpOfRow(const float* x, float shift, float factor, int64_t count);
void ScaleRow(const float* x, float shift, float divisor, int64_t count, float* out);
void AddRows(const float* x, const float* y, int64_t count, float* out);
}  // namespace avx2
namespace avx512 {
float MaxOfRow(const float* x, int64_t count, bool* finite);
float SumExpOfRow(const float* x, float shift, float factor, int64_t count);
void ScaleRow(const float* x, float shift, float divisor, int64_t count, float* out);
void AddRows(const float* x, const float* y, int64_t count, float* out);
}  // namespace avx512
}  // namespace arborist::kernels
