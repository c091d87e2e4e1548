#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "common/base/ids.h"
#include "common/tensor/view.h"
#include "common/threads/thread_pool.h"

namespace arborist::kernels {

// Exact best-first DDTree (algorithms.md 1.2, 1.3): the `budget` most probable prefixes for the given
// candidate lists. Pop the best entry, append it, push its next sibling (score - lp[rank] + lp[rank+1]) and
// its first child (score + lp[depth+1][0]); doubles, in that order of operations. Equal scores:
// lexicographically smaller rank path first, then the lower token id. Node scores are the double sums rounded
// to float, then capped at the score of the node before (a sibling's double may exceed its elder's by the
// rounding of that subtraction) and kept finite, so the list is always non-increasing. The tree is smaller
// than budget + 1 only when candidates run out. A chain is the same call with k = 1.
inline constexpr int kTreeBuildMaxBudget = 255;
inline constexpr int kTreeBuildMaxDepth = 63;

struct TreeBuildArgs {
  TokenId root{};
  View2<const TokenId> token;   // [depths, k] candidates, distinct in a row; depths 0..63
  View2<const float> log_prob;  // [depths, k], finite, <= 0, non-increasing in a row
  int budget = 0;               // 0..255 drafted nodes
  View1<TokenId> out_token;     // [budget + 1]
  View1<int32_t> out_parent;    // [budget + 1]
  View1<float> out_score;       // [budget + 1]
  int* out_nodes = nullptr;     // nodes written, root included
};

// NaN, infinite, positive or increasing log-probabilities are InvalidArgument with depth, rank and value.
absl::Status ValidateTreeBuild(const TreeBuildArgs& args);

namespace reference {
// Enumerates every prefix and sorts: for small sizes only.
absl::Status TreeBuild(const TreeBuildArgs& args, StreamView stream);
}  // namespace reference
namespace cpu {
absl::Status TreeBuild(const TreeBuildArgs& args, StreamView stream);
}
namespace cuda {
absl::Status TreeBuild(const TreeBuildArgs& args, StreamView stream);
}

}  // namespace arborist::kernels
