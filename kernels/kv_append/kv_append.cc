#include "kernels/kv_append/kv_append.h"

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace arborist::kernels {

absl::Status ValidateKvAppendShapes(const KvAppendArgs& args) {
  if (args.slot.size < 0) {
    return absl::InvalidArgumentError(absl::StrCat("slot.size=", args.slot.size, ", expected >= 0"));
  }
  if (args.row_bytes <= 0) {
    return absl::InvalidArgumentError(absl::StrCat("row_bytes=", args.row_bytes, ", expected > 0"));
  }
  if (args.narrow && args.row_bytes % 2 != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("row_bytes=", args.row_bytes, ", expected whole bf16 elements"));
  }
  const int64_t source_bytes = args.narrow ? 2 * args.row_bytes : args.row_bytes;
  if (args.source_stride_bytes < source_bytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("source_stride_bytes=", args.source_stride_bytes, ", expected at least ",
                     args.narrow ? "2 * row_bytes=" : "row_bytes=", source_bytes));
  }
  if (args.narrow && args.source_stride_bytes % 4 != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("source_stride_bytes=", args.source_stride_bytes, ", expected whole fp32 elements"));
  }
  if (args.slot.size > 0 && (args.rows == nullptr || args.plane == nullptr || args.slot.data == nullptr)) {
    return absl::InvalidArgumentError(absl::StrCat(args.rows == nullptr    ? "rows"
                                                   : args.plane == nullptr ? "plane"
                                                                           : "slot.data",
                                                   "=null, expected the address of ", args.slot.size,
                                                   " rows"));
  }
  return absl::OkStatus();
}

absl::Status ValidateKvAppend(const KvAppendArgs& args) {
  RETURN_IF_ERROR(ValidateKvAppendShapes(args));
  for (int64_t token = 0; token < args.slot.size; ++token) {
    if (args.slot[token] >= args.slots) {
      return absl::InvalidArgumentError(absl::StrCat("slot[", token, "]=", args.slot[token],
                                                     ", expected a slot below ", args.slots,
                                                     ", or a negative one"));
    }
  }
  return absl::OkStatus();
}

}  // namespace arborist::kernels
