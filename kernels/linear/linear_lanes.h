#pragma once

#include <cstdint>

#include "common/tensor/dtype.h"

// Register-tiled dot products, one version for each instruction set. Rows share the widened weights; the bits
// of a result do not depend on the tile it was computed in.
namespace arborist::kernels {

struct DotBlockArgs {
  const float* x = nullptr;  // row r starts at x + (index ? index[r] : r) * x_stride
  int64_t x_stride = 0;
  const int32_t* index = nullptr;  // may be null
  int64_t rows = 0;
  const void* weight = nullptr;  // [outputs, k], contiguous
  DType dtype = DType::kF32;     // F32, BF16 or F16
  int64_t outputs = 0;
  int64_t k = 0;
  float* out = nullptr;  // [rows, outputs] at stride out_stride
  int64_t out_stride = 0;
};

// Row-parallel products: segment s of a row is k in [bound[s], bound[s + 1]).
struct DotSegmentsArgs {
  const float* x = nullptr;
  int64_t x_stride = 0;
  const int32_t* index =
      nullptr;  // of the row's place in `sums` and `out` (x rows are in order); may be null
  int64_t rows = 0;
  const void* weight = nullptr;
  DType dtype = DType::kF32;
  int64_t outputs = 0;
  int64_t k = 0;
  int64_t past = 0;  // weights behind the last output that may be read (and are not used)
  int segments = 8;
  int64_t bound[9] = {};
  // What happens to the partial sums p[0..segments) of (row, output):
  //   sums given:  sums[row, output, s] = fma(row_weight[r], p[s], the same), and with `finish` p[s] is added
  //   instead
  //                and the joined result goes to out
  //   sums null:   the joined result goes to out
  float* sums = nullptr;  // [rows, outputs, 8] at stride sums_stride
  int64_t sums_stride = 0;
  const float* row_weight = nullptr;
  bool finish = false;
  float* out = nullptr;
  int64_t out_stride = 0;
};

namespace portable {
void DotBlock(const DotBlockArgs& args);
void DotSegments(const DotSegmentsArgs& args);
}  // namespace portable
namespace avx2 {
void DotBlock(const DotBlockArgs& args);
void DotSegments(const DotSegmentsArgs& args);
}  // namespace avx2
namespace avx512 {
void DotBlock(const DotBlockArgs& args);
void DotSegments(const DotSegmentsArgs& args);
}  // namespace avx512

// For the active instruction set.
void DotBlock(const DotBlockArgs& args);
void DotSegments(const DotSegmentsArgs& args);

// ((0+1)+(2+3))+((4+5)+(6+7)), or the subtree of 1, 2 or 4 segments.
// Always inline: a copy compiled for one instruction set must not become everybody's.
[[gnu::always_inline]] inline float JoinSegments(const float* p, int segments) {
  switch (segments) {
    case 1:
      return p[0];
    case 2:
      return p[0] + p[1];
    case 4:
      return (p[0] + p[1]) + (p[2] + p[3]);
    default:
      return ((p[0] + p[1]) + (p[2] + p[3])) + ((p[4] + p[5]) + (p[6] + p[7]));
  }
}

}  // namespace arborist::kernels
