#include <cuda_runtime.h>

#include "common/base/status_macros.h"
#include "kernels/accepted_moves/accepted_moves.h"
#include "kernels/kernel_overlap/kernel_overlap.cuh"

namespace arborist::kernels::cuda {
namespace {

constexpr int kThreads = 1024;

// One block: rows first, then a warp for each tree and a lane for each step of its path.
__global__ void __launch_bounds__(kThreads) FindMoves(AcceptedMovesArgs args) {
  LetNextKernelStart();
  WaitForKernelBefore();
  const int64_t rows = args.write_slot.size, trees = args.tree_begin.size - 1;
  const int32_t tree_rows = args.tree_begin[trees];
  for (int64_t row = threadIdx.x; row < rows; row += kThreads) {
    args.from[row] = -1;
    args.to[row] = -1;
    args.feature_slot[row] = row < tree_rows ? -1 : args.write_slot[row];
  }
  __syncthreads();
  const int lane = threadIdx.x % 32;
  for (int64_t tree = threadIdx.x / 32; tree < trees; tree += kThreads / 32) {
    const int32_t begin = args.tree_begin[tree], end = args.tree_begin[tree + 1];
    if (begin < 0 || end > rows) {
      continue;
    }
    const int32_t nodes = end - begin, length = min(args.path_length[tree], nodes);
    for (int32_t first = 0; first < length; first += 32) {
      const int32_t j = first + lane;
      const int32_t node = j < length ? args.path[begin + j] : -1;
      const unsigned outside = __ballot_sync(0xffffffffu, node < 0 || node >= nodes);
      const bool kept = (outside & ((2u << lane) - 1)) == 0;  // neither this step nor one before it
      // A node that stands twice in the path (only bad data has one) belongs where its last step puts it.
      const unsigned same = __match_any_sync(0xffffffffu, kept ? node : -1);
      if (kept) {
        if (same >> lane == 1) {
          args.feature_slot[begin + node] = args.write_slot[begin + j];
        }
        if (node != j) {
          args.from[begin + j] = args.write_slot[begin + node];
          args.to[begin + j] = args.write_slot[begin + j];
        }
      }
      if (outside != 0) {
        break;
      }
      __syncwarp();
    }
  }
}

}  // namespace

absl::Status AcceptedMoves(const AcceptedMovesArgs& args, StreamView stream) {
  RETURN_IF_ERROR(ValidateAcceptedMoves(args));
  if (args.write_slot.size == 0) {
    return absl::OkStatus();
  }
  return LaunchOverlapped("accepted_moves", FindMoves, {.grid = 1, .block = kThreads}, stream.cuda_stream,
                          args);
}

}  // namespace arborist::kernels::cuda
