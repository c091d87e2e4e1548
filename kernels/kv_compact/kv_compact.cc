#include "kernels/kv_compact/kv_compact.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace arborist::kernels {
namespace {

absl::Status ValidateSlots(const std::string& name, const View1<const int32_t>& slot, int64_t slots) {
  for (int64_t move = 0; move < slot.size; ++move) {
    if (slot[move] < 0 || slot[move] >= slots) {
      return absl::InvalidArgumentError(
          absl::StrCat(name, "[", move, "]=", slot[move], ", expected a slot in [0, ", slots, ")"));
    }
    for (int64_t earlier = 0; earlier < move; ++earlier) {
      if (slot[earlier] == slot[move]) {
        return absl::InvalidArgumentError(absl::StrCat(name, "[", move, "]=", slot[move],
                                                       ", expected distinct slots, ", name, "[", earlier,
                                                       "] is the same"));
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace

size_t KvCompactScratchBytes(int64_t moves, int64_t max_row_bytes, int threads) {
  return static_cast<size_t>(moves) * static_cast<size_t>(max_row_bytes) * static_cast<size_t>(threads);
}

absl::Status ValidateKvCompact(const KvCompactArgs& args) {
  if (args.plane.size != args.row_bytes.size) {
    return absl::InvalidArgumentError(
        absl::StrCat("row_bytes.size=", args.row_bytes.size, ", expected plane.size=", args.plane.size));
  }
  if (args.from.size != args.to.size) {
    return absl::InvalidArgumentError(
        absl::StrCat("from.size=", args.from.size, ", expected to.size=", args.to.size));
  }
  int64_t max_row_bytes = 0;
  for (int64_t plane = 0; plane < args.plane.size; ++plane) {
    if (args.plane[plane] == nullptr) {
      return absl::InvalidArgumentError(absl::StrCat("plane[", plane, "]=null, expected an address"));
    }
    if (args.row_bytes[plane] <= 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("row_bytes[", plane, "]=", args.row_bytes[plane], ", expected > 0"));
    }
    max_row_bytes = std::max(max_row_bytes, args.row_bytes[plane]);
  }
  const auto scratch = static_cast<int64_t>(KvCompactScratchBytes(args.from.size, max_row_bytes, 1));
  if (args.scratch.size < scratch) {
    return absl::InvalidArgumentError(absl::StrCat("scratch.size=", args.scratch.size,
                                                   ", expected at least moves * max(row_bytes)=", scratch));
  }
  RETURN_IF_ERROR(ValidateSlots("from", args.from, args.slots));
  return ValidateSlots("to", args.to, args.slots);
}

}  // namespace arborist::kernels
