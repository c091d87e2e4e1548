#include "kernels/vocabulary_row/vocabulary_row.h"

#include <algorithm>

#include "kernels/simd/isa.h"
#include "kernels/vocabulary_row/vocabulary_row_lanes.h"

namespace arborist::kernels {

RowPeak PeakOfRow(const float* x, int64_t count) {
  // The first block with the largest element holds the first such element.
  constexpr int64_t kBlock = 256;
  const auto max_of_row = ForActiveIsa(portable::MaxOfRow, avx2::MaxOfRow, avx512::MaxOfRow);
  RowPeak peak;
  int64_t best = 0;
  for (int64_t begin = 0; begin < count; begin += kBlock) {
    bool finite = true;
    const float max = max_of_row(x + begin, std::min(kBlock, count - begin), &finite);
    peak.finite &= finite;
    if (begin == 0 || max > peak.max) {
      peak.max = max;
      best = begin;
    }
  }
  peak.index = std::find(x + best, x + count, peak.max) - x;
  peak.max += 0.0f;  // -0 becomes +0
  return peak;
}

float SumExpOfRow(const float* x, float shift, float factor, int64_t count) {
  return ForActiveIsa(portable::SumExpOfRow, avx2::SumExpOfRow, avx512::SumExpOfRow)(x, shift, factor, count);
}

void ScaleRow(const float* x, float shift, float divisor, int64_t count, float* out) {
  ForActiveIsa(portable::ScaleRow, avx2::ScaleRow, avx512::ScaleRow)(x, shift, divisor, count, out);
}

void AddRows(const float* x, const float* y, int64_t count, float* out) {
  ForActiveIsa(portable::AddRows, avx2::AddRows, avx512::AddRows)(x, y, count, out);
}

}  // namespace arborist::kernels
