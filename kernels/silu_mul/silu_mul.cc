#include "kernels/silu_mul/silu_mul.h"

#include "absl/strings/str_cat.h"

namespace arborist::kernels {

absl::Status ValidateSiluMul(const SiluMulArgs& args) {
  const auto wrong = [&](absl::string_view field, int64_t rows, int64_t columns) {
    return absl::InvalidArgumentError(absl::StrCat(field, "=[", rows, ", ", columns, "], expected gate's [",
                                                   args.gate.rows, ", ", args.gate.columns, "]"));
  };
  if (args.up.rows != args.gate.rows || args.up.columns != args.gate.columns) {
    return wrong("up", args.up.rows, args.up.columns);
  }
  if (args.out.rows != args.gate.rows || args.out.columns != args.gate.columns) {
    return wrong("out", args.out.rows, args.out.columns);
  }
  for (const int64_t stride : {args.gate.row_stride, args.up.row_stride, args.out.row_stride}) {
    if (stride < args.gate.columns) {
      return absl::InvalidArgumentError(
          absl::StrCat("row_stride=", stride, ", expected at least ", args.gate.columns));
    }
  }
  return absl::OkStatus();
}

}  // namespace arborist::kernels
