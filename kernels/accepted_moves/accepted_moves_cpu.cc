#include "kernels/accepted_moves/accepted_moves.h"

namespace arborist::kernels::cpu {

// Some hundred integers: the plain loops are the fast ones.
absl::Status AcceptedMoves(const AcceptedMovesArgs& args, StreamView stream) {
  return reference::AcceptedMoves(args, stream);
}

}  // namespace arborist::kernels::cpu
