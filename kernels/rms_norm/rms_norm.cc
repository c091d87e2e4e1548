#include "kernels/rms_norm/rms_norm.h"

#include "absl/strings/str_cat.h"

namespace arborist::kernels {

absl::Status ValidateRmsNorm(const RmsNormArgs& args) {
  if (args.x.columns <= 0 || args.weight.size != args.x.columns) {
    return absl::InvalidArgumentError(
        absl::StrCat("weight.size=", args.weight.size, ", expected x.columns=", args.x.columns, " > 0"));
  }
  if (args.out.rows != args.x.rows || args.out.columns != args.x.columns) {
    return absl::InvalidArgumentError(absl::StrCat("out=[", args.out.rows, ", ", args.out.columns,
                                                   "], expected [", args.x.rows, ", ", args.x.columns, "]"));
  }
  if (args.x.row_stride < args.x.columns || args.out.row_stride < args.out.columns) {
    return absl::InvalidArgumentError(absl::StrCat("row_stride=", args.x.row_stride, " and ",
                                                   args.out.row_stride, ", expected at least ",
                                                   args.x.columns));
  }
  if (!(args.epsilon > 0)) {
    return absl::InvalidArgumentError(absl::StrCat("epsilon=", args.epsilon, ", expected > 0"));
  }
  const float* begin = args.x.data;
  const float* end = begin + args.x.rows * args.x.row_stride;
  const bool overlaps = args.out.data < end && begin < args.out.data + args.out.rows * args.out.row_stride;
  if (overlaps && (args.out.data != begin || args.out.row_stride != args.x.row_stride)) {
    return absl::InvalidArgumentError("out overlaps x in part, expected the same rows or none");
  }
  return absl::OkStatus();
}

RmsNormArgs NormOf(const AddRmsNormArgs& args) {
  return {.x = {args.into.data, args.into.rows, args.into.columns, args.into.row_stride},
          .weight = args.weight,
          .out = args.out,
          .epsilon = args.epsilon};
}

absl::Status ValidateAddRmsNorm(const AddRmsNormArgs& args) {
  if (args.from.rows != args.into.rows || args.from.columns != args.into.columns ||
      args.from.row_stride < args.from.columns) {
    return absl::InvalidArgumentError(absl::StrCat("from=[", args.from.rows, ", ", args.from.columns,
                                                   "], expected [", args.into.rows, ", ", args.into.columns,
                                                   "]"));
  }
  if (args.out.rows > 0 && args.out.data == args.into.data) {
    return absl::InvalidArgumentError("out is into, expected another place: both are kept");
  }
  if (args.copy.columns > 0 && (args.copy.rows != args.into.rows || args.copy.columns != args.into.columns ||
                                args.copy.row_stride < args.copy.columns)) {
    return absl::InvalidArgumentError(absl::StrCat("copy=[", args.copy.rows, ", ", args.copy.columns,
                                                   "], expected [", args.into.rows, ", ", args.into.columns,
                                                   "]"));
  }
  return ValidateRmsNorm(NormOf(args));
}

}  // namespace arborist::kernels
