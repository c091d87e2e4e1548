#include "kernels/accepted_moves/accepted_moves.h"

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "kernels/tree_accept/check_size.h"

namespace arborist::kernels {

absl::Status ValidateAcceptedMoves(const AcceptedMovesArgs& args) {
  if (args.tree_begin.size < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("tree_begin.size=", args.tree_begin.size, ", expected trees + 1"));
  }
  const int64_t rows = args.write_slot.size;
  RETURN_IF_ERROR(CheckSize("path_length", args.path_length.size, "tree", args.tree_begin.size - 1));
  RETURN_IF_ERROR(CheckSize("path", args.path.size, "row", rows));
  RETURN_IF_ERROR(CheckSize("from", args.from.size, "row", rows));
  RETURN_IF_ERROR(CheckSize("to", args.to.size, "row", rows));
  return CheckSize("feature_slot", args.feature_slot.size, "row", rows);
}

}  // namespace arborist::kernels
