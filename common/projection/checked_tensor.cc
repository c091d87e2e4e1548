#include "common/projection/checked_tensor.h"

#include <bit>
#include <cmath>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/status_macros.h"
#include "common/tensor/dtype.h"
#include "common/weights/finite.h"

namespace arborist {
namespace {

absl::StatusOr<TensorView> FindTensor(const Checkpoint& checkpoint, const std::string& name,
                                      const std::vector<int64_t>& shape) {
  ASSIGN_OR_RETURN(const TensorView tensor, checkpoint.Find(name));
  const std::string place = absl::StrCat(checkpoint.directory(), ": tensor ", name);
  if (tensor.shape != shape) {
    return absl::InvalidArgumentError(
        absl::StrCat(place, ": shape=", ShowShape(tensor.shape), ", expected ", ShowShape(shape)));
  }
  if (tensor.dtype != DType::kF32 && tensor.dtype != DType::kBF16 && tensor.dtype != DType::kF16) {
    return absl::InvalidArgumentError(
        absl::StrCat(place, ": dtype=", std::string(Name(tensor.dtype)), ", expected F32, BF16 or F16"));
  }
  return tensor;
}

float HalfToFloat(uint16_t bits) {
  const float sign = (bits & 0x8000u) != 0 ? -1.0f : 1.0f;
  const int exponent = (bits >> 10) & 31;
  const int fraction = bits & 1023;
  if (exponent == 0) {
    return sign * std::ldexp(static_cast<float>(fraction), -24);
  }
  if (exponent == 31) {
    return std::bit_cast<float>(((bits & 0x8000u) << 16) | 0x7f800000u |
                                (static_cast<uint32_t>(fraction) << 13));
  }
  return sign * std::ldexp(static_cast<float>(fraction + 1024), exponent - 25);
}

float ElementOf(const TensorView& tensor, int64_t index) {
  switch (tensor.dtype) {
    case DType::kF32:
      return tensor.As<float>()[index];
    case DType::kBF16:
      return ToFloat(tensor.As<BFloat16>()[index]);
    case DType::kF16:
      return HalfToFloat(tensor.As<uint16_t>()[index]);
    default:
      Check(false, "FindTensor lets floating types through only");
      return 0;
  }
}

}  // namespace

absl::StatusOr<WeightView> FindMatrix(const Checkpoint& checkpoint, const std::string& name, int64_t rows,
                                      int64_t columns) {
  ASSIGN_OR_RETURN(const TensorView tensor, FindTensor(checkpoint, name, {rows, columns}));
  return WeightView{.data = tensor.data, .dtype = tensor.dtype, .rows = rows, .columns = columns};
}

absl::StatusOr<WeightView> FindFiniteMatrix(const Checkpoint& checkpoint, const std::string& name,
                                            int64_t rows, int64_t columns) {
  ASSIGN_OR_RETURN(const TensorView tensor, FindTensor(checkpoint, name, {rows, columns}));
  if (!AllFinite(tensor)) {
    return absl::InvalidArgumentError(absl::StrCat(checkpoint.directory(), ": tensor ", name,
                                                   ": holds an infinity or NaN, expected finite values"));
  }
  return WeightView{.data = tensor.data, .dtype = tensor.dtype, .rows = rows, .columns = columns};
}

absl::StatusOr<std::vector<float>> ReadVector(const Checkpoint& checkpoint, const std::string& name,
                                              int64_t size) {
  ASSIGN_OR_RETURN(const TensorView tensor, FindTensor(checkpoint, name, {size}));
  std::vector<float> values(size);
  for (int64_t i = 0; i < size; ++i) {
    values[i] = ElementOf(tensor, i);
    if (!std::isfinite(values[i])) {
      return absl::InvalidArgumentError(absl::StrCat(checkpoint.directory(), ": tensor ", name, ": element ",
                                                     i, "=", values[i], ", expected a finite value"));
    }
  }
  return values;
}

}  // namespace arborist
