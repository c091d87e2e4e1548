#include "verifier/model/tensor_reader.h"

#include <cstdlib>
#include <cstring>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/math.h"
#include "common/base/status_macros.h"
#include "common/weights/finite.h"

namespace arborist::verifier {
namespace {

constexpr size_t kAlignment = 64;

// IEEE half precision, exact: subnormals are integers times 2^-24.
float HalfToFloat(uint16_t half) {
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000u) << 16;
  const uint32_t exponent = (half >> 10) & 0x1fu;
  const uint32_t mantissa = half & 0x3ffu;
  if (exponent == 0) {
    const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
    return sign != 0 ? -magnitude : magnitude;
  }
  const uint32_t widened = exponent == 31 ? 0xffu : exponent + 112;
  return std::bit_cast<float>(sign | (widened << 23) | (mantissa << 13));
}

}  // namespace

void TensorReader::Free::operator()(std::byte* block) const { std::free(block); }

const std::byte* RowOf(const WeightView& matrix, int64_t row) {
  return static_cast<const std::byte*>(matrix.data) + row * matrix.columns * ByteSize(matrix.dtype);
}

std::byte* TensorReader::Allocate(size_t bytes) {
  const size_t size = static_cast<size_t>(RoundUp(static_cast<int64_t>(bytes) + 1, kAlignment));
  auto* block = static_cast<std::byte*>(std::aligned_alloc(kAlignment, size));
  Check(block != nullptr, "memory for weights");
  owned_.emplace_back(block);
  owned_bytes_ += size;
  return block;
}

absl::StatusOr<TensorView> TensorReader::Find(const std::string& name, const std::vector<int64_t>& shape) {
  ASSIGN_OR_RETURN(TensorView tensor, checkpoint_.Find(prefix_ + name));
  used_.insert(prefix_ + name);
  const auto error = [&](const std::string& what) {
    return absl::InvalidArgumentError(
        absl::StrCat(checkpoint_.directory(), ": tensor ", prefix_, name, ": ", what));
  };
  if (tensor.dtype != DType::kF32 && tensor.dtype != DType::kBF16 && tensor.dtype != DType::kF16) {
    return error(
        absl::StrCat("dtype=", absl::string_view(Name(tensor.dtype).data(), Name(tensor.dtype).size()),
                     ", expected F32, BF16 or F16"));
  }
  if (tensor.shape != shape) {
    return error(absl::StrCat("shape=", ShowShape(tensor.shape), ", expected ", ShowShape(shape)));
  }
  if (check_finite_ && !AllFinite(tensor)) {
    return error("holds an infinity or NaN, expected finite values");
  }
  return tensor;
}

absl::StatusOr<WeightView> TensorReader::Matrix(const std::string& name, int64_t rows, int64_t columns) {
  ASSIGN_OR_RETURN(const TensorView tensor, Find(name, {rows, columns}));
  return WeightView{tensor.data, tensor.dtype, rows, columns};
}

absl::StatusOr<WeightView> TensorReader::Rows(const std::string& name, int64_t rows, int64_t columns,
                                              ShardPlan::Range range) {
  ASSIGN_OR_RETURN(WeightView matrix, Matrix(name, rows, columns));
  matrix.data = RowOf(matrix, range.begin);
  matrix.rows = range.count;
  return matrix;
}

absl::StatusOr<WeightView> TensorReader::Columns(const std::string& name, int64_t rows, int64_t columns,
                                                 ShardPlan::Range range) {
  ASSIGN_OR_RETURN(const WeightView matrix, Matrix(name, rows, columns));
  if (range.count == columns) {
    return matrix;
  }
  const size_t element = ByteSize(matrix.dtype);
  const size_t bytes = static_cast<size_t>(range.count) * element;
  std::byte* copy = Allocate(static_cast<size_t>(rows) * bytes);
  for (int64_t row = 0; row < rows; ++row) {
    std::memcpy(copy + static_cast<size_t>(row) * bytes, RowOf(matrix, row) + range.begin * element, bytes);
  }
  return WeightView{copy, matrix.dtype, rows, range.count};
}

absl::StatusOr<View1<const float>> TensorReader::Vector(const std::string& name, int64_t size) {
  ASSIGN_OR_RETURN(const TensorView tensor, Find(name, {size}));
  auto* values = reinterpret_cast<float*>(Allocate(static_cast<size_t>(size) * sizeof(float)));
  for (int64_t i = 0; i < size; ++i) {
    values[i] = tensor.dtype == DType::kF32    ? tensor.As<float>()[i]
                : tensor.dtype == DType::kBF16 ? ToFloat(tensor.As<BFloat16>()[i])
                                               : HalfToFloat(tensor.As<uint16_t>()[i]);
  }
  return View1<const float>{values, size};
}

}  // namespace arborist::verifier
