#include "kernels/linear_per_head/linear_per_head.h"

#include "absl/strings/str_cat.h"

namespace arborist::kernels {

absl::Status ValidateLinearPerHead(const LinearPerHeadArgs& args) {
  const auto wrong = [](absl::string_view field, int64_t value, const std::string& expected) {
    return absl::InvalidArgumentError(absl::StrCat(field, "=", value, ", expected ", expected));
  };
  if (args.tokens < 0 || args.heads < 1 || args.outputs < 1) {
    return wrong("heads", args.heads, "at least 1, with outputs at least 1 and tokens at least 0");
  }
  if (args.weight.rows != args.heads * args.outputs || args.weight.columns < 1) {
    return wrong("weight.rows", args.weight.rows,
                 absl::StrCat("heads * outputs=", args.heads * args.outputs));
  }
  if (args.heads > 1 && args.x_head_stride != 0 && args.x_head_stride < args.weight.columns) {
    return wrong("x_head_stride", args.x_head_stride, absl::StrCat("at least ", args.weight.columns));
  }
  if (args.heads > 1 && args.out_head_stride < args.outputs) {
    return wrong("out_head_stride", args.out_head_stride, absl::StrCat("at least ", args.outputs));
  }
  if (args.x_row_stride < (args.heads - 1) * args.x_head_stride + args.weight.columns) {
    return wrong("x_row_stride", args.x_row_stride, "room for all heads");
  }
  if (args.out_row_stride < (args.heads - 1) * args.out_head_stride + args.outputs) {
    return wrong("out_row_stride", args.out_row_stride, "room for all heads");
  }
  if (args.weight.dtype != DType::kF32 && args.weight.dtype != DType::kBF16 &&
      args.weight.dtype != DType::kF16) {
    return wrong("weight.dtype", static_cast<int>(args.weight.dtype), "F32, BF16 or F16");
  }
  return absl::OkStatus();
}

}  // namespace arborist::kernels
