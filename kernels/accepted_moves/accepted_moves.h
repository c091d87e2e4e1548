#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "common/tensor/view.h"
#include "common/threads/thread_pool.h"

namespace arborist::kernels {

// From accepted paths to what must move in the cache: node path[j] of a tree lies in its own row's slot and
// belongs into the slot of the tree's row j. Rows [tree_begin[0], tree_begin[trees]) are trees, the rows
// behind belong to prompt chunks and stay where they are. Lets a step go from accept to compaction without
// the host.
struct AcceptedMovesArgs {
  View1<const int32_t> tree_begin;   // [trees + 1] first row of each tree; equal neighbours: an empty tree
  View1<const int32_t> path;         // [rows] as tree_accept writes it
  View1<const int32_t> path_length;  // [trees] as tree_accept writes it; 0: nothing of the tree is kept
  View1<const int32_t> write_slot;   // [rows] where a row's K/V lies; -1: a padding row
  View1<int32_t> from;               // [rows] slot to move, or -1: no move
  View1<int32_t> to;                 // [rows] where to, or -1
  View1<int32_t>
      feature_slot;  // [rows] where the row's feature belongs, or -1: a rejected node, a padding row
};

// Sizes only: values are data of the backend. A path that leaves its tree moves nothing.
absl::Status ValidateAcceptedMoves(const AcceptedMovesArgs& args);

namespace reference {
absl::Status AcceptedMoves(const AcceptedMovesArgs& args, StreamView stream);
}
namespace cpu {
absl::Status AcceptedMoves(const AcceptedMovesArgs& args, StreamView stream);
}
namespace cuda {
absl::Status AcceptedMoves(const AcceptedMovesArgs& args, StreamView stream);
}

}  // namespace arborist::kernels
