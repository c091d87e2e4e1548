#include "common/base/status_macros.h"
#include "common/tensor/weight_element.h"
#include "kernels/linear/linear.h"

namespace arborist::kernels::reference {
namespace {

// Plain sums in double: the meaning, not the bits.
double Dot(const float* x, const WeightView& weight, int64_t output, int64_t begin, int64_t end) {
  double sum = 0;
  for (int64_t k = begin; k < end; ++k) {
    sum += static_cast<double>(x[k]) * WeightElement(weight, output, k);
  }
  return sum;
}

}  // namespace

absl::Status Linear(const LinearArgs& args, StreamView) {
  RETURN_IF_ERROR(ValidateLinear(args));
  for (int64_t t = 0; t < args.x.rows; ++t) {
    for (int64_t n = 0; n < args.weight.rows; ++n) {
      args.out.row(t)[n] = static_cast<float>(Dot(args.x.row(t), args.weight, n, 0, args.weight.columns));
    }
  }
  return absl::OkStatus();
}

absl::Status LinearRowParallel(const LinearRowParallelArgs& args, StreamView) {
  RETURN_IF_ERROR(ValidateLinearRowParallel(args));
  for (int64_t t = 0; t < args.x.rows; ++t) {
    for (int64_t n = 0; n < args.weight.rows; ++n) {
      args.out.row(t)[n] = static_cast<float>(Dot(args.x.row(t), args.weight, n, 0, args.weight.columns));
    }
  }
  return absl::OkStatus();
}

}  // namespace arborist::kernels::reference
