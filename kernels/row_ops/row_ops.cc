#include "kernels/row_ops/row_ops.h"

#include "absl/strings/str_cat.h"

namespace arborist::kernels {
namespace {

absl::Status SameShape(const View2<const float>& from, const View2<float>& into) {
  if (from.rows != into.rows || from.columns != into.columns) {
    return absl::InvalidArgumentError(absl::StrCat("into is [", into.rows, ", ", into.columns,
                                                   "], expected [", from.rows, ", ", from.columns, "]"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status ValidateAddRows(const AddRowsArgs& args) { return SameShape(args.from, args.into); }

absl::Status ValidateCopyRows(const CopyRowsArgs& args) { return SameShape(args.from, args.into); }

absl::Status ValidateGatherRows(const GatherRowsArgs& args) {
  if (args.row.size != args.into.rows) {
    return absl::InvalidArgumentError(
        absl::StrCat("row.size=", args.row.size, ", expected into.rows=", args.into.rows));
  }
  if (args.from.columns != args.into.columns) {
    return absl::InvalidArgumentError(
        absl::StrCat("into.columns=", args.into.columns, ", expected from.columns=", args.from.columns));
  }
  return absl::OkStatus();
}

}  // namespace arborist::kernels
