#include <algorithm>

#include "common/base/status_macros.h"
#include "kernels/row_ops/row_ops.h"

namespace arborist::kernels::reference {

absl::Status AddRows(const AddRowsArgs& args, StreamView) {
  RETURN_IF_ERROR(ValidateAddRows(args));
  for (int64_t t = 0; t < args.into.rows; ++t) {
    for (int64_t c = 0; c < args.into.columns; ++c) {
      args.into.row(t)[c] += args.from.row(t)[c];
    }
  }
  return absl::OkStatus();
}

absl::Status GatherRows(const GatherRowsArgs& args, StreamView) {
  RETURN_IF_ERROR(ValidateGatherRows(args));
  for (int64_t t = 0; t < args.into.rows; ++t) {
    std::copy_n(args.from.row(args.row[t]), args.into.columns, args.into.row(t));
  }
  return absl::OkStatus();
}

absl::Status CopyRows(const CopyRowsArgs& args, StreamView) {
  RETURN_IF_ERROR(ValidateCopyRows(args));
  for (int64_t t = 0; t < args.into.rows; ++t) {
    std::copy_n(args.from.row(t), args.into.columns, args.into.row(t));
  }
  return absl::OkStatus();
}

}  // namespace arborist::kernels::reference
