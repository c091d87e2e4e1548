#pragma once

#include <cstdint>

#include "common/tensor/view.h"

namespace arborist {

// One element of a stored matrix, widened exactly.
inline float WeightElement(const WeightView& weight, int64_t row, int64_t column) {
  const int64_t at = row * weight.columns + column;
  switch (weight.dtype) {
    case DType::kBF16:
      return ToFloat(static_cast<const BFloat16*>(weight.data)[at]);
    case DType::kF16:
      return ToFloat(static_cast<const Float16*>(weight.data)[at]);
    default:
      return static_cast<const float*>(weight.data)[at];
  }
}

// Where row `row` begins.
inline const void* WeightRow(const WeightView& weight, int64_t row) {
  return static_cast<const char*>(weight.data) +
         row * weight.columns * static_cast<int64_t>(ByteSize(weight.dtype));
}

}  // namespace arborist
