#include "kernels/kv_append/kv_append.h"

#include "absl/strings/str_cat.h"

namespace arborist::kernels {

absl::Status ValidateKvAppend(const KvAppendArgs& args) {
  if (args.slot.size < 0) {
    return absl::InvalidArgumentError(absl::StrCat("slot.size=", args.slot.size, ", expected >= 0"));
  }
  if (args.row_bytes <= 0) {
    return absl::InvalidArgumentError(absl::StrCat("row_bytes=", args.row_bytes, ", expected > 0"));
  }
  if (args.source_stride_bytes < args.row_bytes) {
    return absl::InvalidArgumentError(absl::StrCat("source_stride_bytes=", args.source_stride_bytes,
                                                   ", expected at least row_bytes=", args.row_bytes));
  }
  if (args.slot.size > 0 && (args.rows == nullptr || args.plane == nullptr || args.slot.data == nullptr)) {
    return absl::InvalidArgumentError(absl::StrCat(args.rows == nullptr    ? "rows"
                                                   : args.plane == nullptr ? "plane"
                                                                           : "slot.data",
                                                   "=null, expected the address of ", args.slot.size,
                                                   " rows"));
  }
  for (int64_t token = 0; token < args.slot.size; ++token) {
    if (args.slot[token] < 0 || args.slot[token] >= args.slots) {
      return absl::InvalidArgumentError(
          absl::StrCat("slot[", token, "]=", args.slot[token], ", expected a slot in [0, ", args.slots, ")"));
    }
  }
  return absl::OkStatus();
}

}  // namespace arborist::kernels
