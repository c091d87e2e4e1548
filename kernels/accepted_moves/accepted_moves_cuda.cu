#include "kernels/accepted_moves/accepted_moves.h"

namespace arborist::kernels::cuda {

absl::Status AcceptedMoves(const AcceptedMovesArgs&, StreamView) {
  return absl::UnimplementedError("accepted_moves: no CUDA version yet");
}

}  // namespace arborist::kernels::cuda
