#include "common/weights/finite.h"

#include <cstdint>

#include "common/base/check.h"

namespace arborist {
namespace {

// Infinity and NaN are the values whose exponent bits are all ones. No early exit: the loop vectorises.
template <typename Bits>
bool AllFiniteBits(const TensorView& tensor, Bits exponent) {
  const Bits* values = tensor.As<Bits>();
  bool finite = true;
  for (int64_t i = 0; i < tensor.elements(); ++i) {
    finite &= (values[i] & exponent) != exponent;
  }
  return finite;
}

}  // namespace

bool AllFinite(const TensorView& tensor) {
  switch (tensor.dtype) {
    case DType::kF32:
      return AllFiniteBits<uint32_t>(tensor, 0x7f800000u);
    case DType::kBF16:
      return AllFiniteBits<uint16_t>(tensor, 0x7f80u);
    case DType::kF16:
      return AllFiniteBits<uint16_t>(tensor, 0x7c00u);
    default:
      Check(false, "AllFinite takes floating types only");
      return false;
  }
}

}  // namespace arborist
