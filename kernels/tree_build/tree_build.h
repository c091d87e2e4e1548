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
// rounding of that subtraction) and kept finite (a zero is +0), so the list is always non-increasing. The
// tree is smaller than budget + 1 only when candidates run out. A chain is the same call with k = 1.
inline constexpr int kTreeBuildMaxBudget = 255;
inline constexpr int kTreeBuildMaxDepth = 63;
inline constexpr int kTreeBuildMaxK = 64;

// What one stream asks for. A budget of 0 leaves the root alone, which is also what a padding stream is.
struct TreeBuildParams {
  TokenId root{};
  int32_t depths = 0;  // 0..rows of the stream
  int32_t k = 0;       // candidates a depth, 0..columns; at least 1 where depths > 0
  int32_t budget = 0;  // 0..255 drafted nodes, less than the columns of the outputs
};

// Row s * depths + d of token and log_prob belongs to stream s at depth d + 1; what lies beyond a stream's
// own depths and k is not read.
struct TreeBuildArgs {
  View1<const TreeBuildParams> params;  // [streams], in the backend's memory
  View2<const TokenId> token;           // [streams * depths, max_k] candidates, distinct in a row
  View2<const float> log_prob;          // [streams * depths, max_k], finite, <= 0, non-increasing in a row
  View2<TokenId> out_token;             // [streams, max_budget + 1]
  View2<int32_t> out_parent;            // [streams, max_budget + 1]
  View2<float> out_score;               // [streams, max_budget + 1]
  View1<int32_t> out_nodes;             // [streams] nodes written, root included
  View1<int32_t> error{};  // [streams], or empty on the CPU. CUDA: 1 where the params or a log-probability
                           // that the stream reads are bad; its tree is the root alone then
};

// NaN, infinite, positive or increasing log-probabilities are InvalidArgument with row, rank and value, and
// so are bad params; CUDA sets the stream's error instead (and does not look for repeated tokens).
absl::Status ValidateTreeBuildShapes(const TreeBuildArgs& args);
// Shapes and contents: host memory only.
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
