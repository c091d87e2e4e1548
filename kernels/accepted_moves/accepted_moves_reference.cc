#include "common/base/status_macros.h"
#include "kernels/accepted_moves/accepted_moves.h"

namespace arborist::kernels::reference {

absl::Status AcceptedMoves(const AcceptedMovesArgs& args, StreamView) {
  RETURN_IF_ERROR(ValidateAcceptedMoves(args));
  const int64_t rows = args.write_slot.size, trees = args.tree_begin.size - 1;
  for (int64_t row = 0; row < rows; ++row) {
    args.from[row] = -1;
    args.to[row] = -1;
    args.feature_slot[row] = row < args.tree_begin[trees] ? -1 : args.write_slot[row];
  }
  for (int64_t tree = 0; tree < trees; ++tree) {
    const int32_t begin = args.tree_begin[tree], nodes = args.tree_begin[tree + 1] - begin;
    for (int32_t j = 0; j < args.path_length[tree] && j < nodes; ++j) {
      const int32_t node = args.path[begin + j];
      if (node < 0 || node >= nodes) {
        break;
      }
      args.feature_slot[begin + node] = args.write_slot[begin + j];
      if (node != j) {
        args.from[begin + j] = args.write_slot[begin + node];
        args.to[begin + j] = args.write_slot[begin + j];
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace arborist::kernels::reference
