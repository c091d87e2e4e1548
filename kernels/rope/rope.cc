#include "kernels/rope/rope.h"

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace arborist::kernels {

absl::Status ValidateRopeShapes(const RopeArgs& args) {
  if (args.cosine.columns <= 0 || args.sine.columns != args.cosine.columns ||
      args.sine.rows != args.cosine.rows) {
    return absl::InvalidArgumentError(absl::StrCat("sine=[", args.sine.rows, ", ", args.sine.columns,
                                                   "], expected cosine's [", args.cosine.rows, ", ",
                                                   args.cosine.columns, "] with columns > 0"));
  }
  const int64_t width = 2 * args.cosine.columns;
  if (args.heads < 1) {
    return absl::InvalidArgumentError(absl::StrCat("heads=", args.heads, ", expected at least 1"));
  }
  if (args.heads > 1 && args.head_stride < width) {
    return absl::InvalidArgumentError(
        absl::StrCat("head_stride=", args.head_stride, ", expected at least ", width));
  }
  if (args.row_stride < (args.heads - 1) * args.head_stride + width) {
    return absl::InvalidArgumentError(absl::StrCat("row_stride=", args.row_stride, ", expected at least ",
                                                   (args.heads - 1) * args.head_stride + width));
  }
  if (args.from != nullptr && args.from_row_stride < (args.heads - 1) * args.from_head_stride + width) {
    return absl::InvalidArgumentError(absl::StrCat("from_row_stride=", args.from_row_stride,
                                                   ", expected at least ",
                                                   (args.heads - 1) * args.from_head_stride + width));
  }
  return absl::OkStatus();
}

absl::Status ValidateRope(const RopeArgs& args) {
  RETURN_IF_ERROR(ValidateRopeShapes(args));
  for (int64_t t = 0; t < args.position.size; ++t) {
    if (args.position[t] < 0 || args.position[t] >= args.cosine.rows) {
      return absl::InvalidArgumentError(absl::StrCat("position[", t, "]=", args.position[t],
                                                     ", expected one in [0, ", args.cosine.rows, ")"));
    }
  }
  return absl::OkStatus();
}

}  // namespace arborist::kernels
