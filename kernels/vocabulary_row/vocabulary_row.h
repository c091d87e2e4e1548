#pragma once

#include <cstdint>

namespace arborist::kernels {

// Passes over one row of logits that sampling and drafting share. The same bits on every instruction set.

struct RowPeak {
  float max = 0;       // +0 where the largest are zeros
  int64_t index = 0;   // the first element that equals it
  bool finite = true;  // every element; otherwise max and index mean nothing
};
// count >= 1.
RowPeak PeakOfRow(const float* x, int64_t count);

// sum of ExactExp((x[i] - shift) * factor), difference and product rounded apart: lane l adds i = l, l + 16,
// ... in ascending order, lanes joined as in linear.h. A factor of 1 changes no bit.
float SumExpOfRow(const float* x, float shift, float factor, int64_t count);

// out[i] = (x[i] - shift) / divisor.
void ScaleRow(const float* x, float shift, float divisor, int64_t count, float* out);

// out[i] = x[i] + y[i]. out may be x or y.
void AddRows(const float* x, const float* y, int64_t count, float* out);

}  // namespace arborist::kernels
