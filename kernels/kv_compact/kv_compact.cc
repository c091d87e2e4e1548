#include "kernels/kv_compact/kv_compact.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace arborist::kernels {
namespace {

// slot[move], of a real move, against the planes and the real moves before it.
absl::Status ValidateSlot(const char* name, const View1<const int32_t>& slot, const KvCompactArgs& args,
                          int64_t move) {
  if (slot[move] >= args.slots) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, "[", move, "]=", slot[move], ", expected a slot below ", args.slots));
  }
  for (int64_t earlier = 0; earlier < move; ++earlier) {
    if (slot[earlier] == slot[move] && args.from[earlier] >= 0 && args.to[earlier] >= 0) {
      return absl::InvalidArgumentError(absl::StrCat(name, "[", move, "]=", slot[move],
                                                     ", expected distinct slots, ", name, "[", earlier,
                                                     "] is the same"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

size_t KvCompactScratchBytes(int64_t moves, int64_t max_row_bytes, int threads) {
  return static_cast<size_t>(moves) * static_cast<size_t>(max_row_bytes) * static_cast<size_t>(threads);
}

absl::Status ValidateKvCompactShapes(const KvCompactArgs& args) {
  if (args.plane.size != args.row_bytes.size) {
    return absl::InvalidArgumentError(
        absl::StrCat("row_bytes.size=", args.row_bytes.size, ", expected plane.size=", args.plane.size));
  }
  if (args.plane.size > kMaxCompactPlanes) {
    return absl::InvalidArgumentError(
        absl::StrCat("plane.size=", args.plane.size, ", expected at most ", kMaxCompactPlanes, " planes"));
  }
  if (args.from.size != args.to.size) {
    return absl::InvalidArgumentError(
        absl::StrCat("from.size=", args.from.size, ", expected to.size=", args.to.size));
  }
  if (args.from.size > kMaxCompactMoves) {
    return absl::InvalidArgumentError(
        absl::StrCat("from.size=", args.from.size, ", expected at most ", kMaxCompactMoves, " moves"));
  }
  if (args.plane.size > 0 && args.max_row_bytes <= 0) {
    return absl::InvalidArgumentError(absl::StrCat("max_row_bytes=", args.max_row_bytes, ", expected > 0"));
  }
  return absl::OkStatus();
}

absl::Status ValidateKvCompact(const KvCompactArgs& args) {
  RETURN_IF_ERROR(ValidateKvCompactShapes(args));
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
  if (args.max_row_bytes != max_row_bytes) {
    return absl::InvalidArgumentError(absl::StrCat("max_row_bytes=", args.max_row_bytes,
                                                   ", expected the largest of row_bytes, ", max_row_bytes));
  }
  const auto scratch = static_cast<int64_t>(KvCompactScratchBytes(args.from.size, max_row_bytes, 1));
  if (args.scratch.size < scratch) {
    return absl::InvalidArgumentError(absl::StrCat("scratch.size=", args.scratch.size,
                                                   ", expected at least moves * max_row_bytes=", scratch));
  }
  for (int64_t move = 0; move < args.from.size; ++move) {
    if (args.from[move] >= 0 && args.to[move] >= 0) {
      RETURN_IF_ERROR(ValidateSlot("from", args.from, args, move));
      RETURN_IF_ERROR(ValidateSlot("to", args.to, args, move));
    }
  }
  return absl::OkStatus();
}

}  // namespace arborist::kernels
