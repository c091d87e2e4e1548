#pragma once

#include <cstddef>
#include <cstdint>

#include "common/tensor/dtype.h"

namespace arborist {

// Non-owning row-major views. The memory belongs to the backend that the kernel runs on and must outlive the
// call. Accessors are constexpr, so that device code calls them too.
template <typename T>
struct View1 {
  T* data = nullptr;
  int64_t size = 0;
  constexpr T& operator[](int64_t i) const { return data[i]; }
};

template <typename T>
struct View2 {
  T* data = nullptr;
  int64_t rows = 0;
  int64_t columns = 0;
  int64_t row_stride = 0;  // elements, >= columns
  constexpr T* row(int64_t r) const { return data + r * row_stride; }
};

// Contiguous [rows, heads, columns].
template <typename T>
struct View3 {
  T* data = nullptr;
  int64_t rows = 0;
  int64_t heads = 0;
  int64_t columns = 0;
  constexpr T* at(int64_t r, int64_t h) const { return data + (r * heads + h) * columns; }
};

// A matrix as the checkpoint stores it: [rows = outputs, columns = inputs], row-major and contiguous, F32,
// BF16 or F16.
struct WeightView {
  const void* data = nullptr;
  DType dtype = DType::kF32;
  int64_t rows = 0;
  int64_t columns = 0;
};

// Rows of logits as a product leaves them: F32 or BF16.
struct LogitsView {
  const void* data = nullptr;
  DType dtype = DType::kF32;
  int64_t rows = 0;
  int64_t columns = 0;
  int64_t row_stride = 0;  // elements, >= columns

  LogitsView() = default;
  LogitsView(const void* data, DType dtype, int64_t rows, int64_t columns, int64_t row_stride)
      : data(data), dtype(dtype), rows(rows), columns(columns), row_stride(row_stride) {}
  LogitsView(
      View2<const float> logits)  // NOLINT(google-explicit-constructor): fp32 rows are logits as they are
      : LogitsView(logits.data, DType::kF32, logits.rows, logits.columns, logits.row_stride) {}
};

}  // namespace arborist
