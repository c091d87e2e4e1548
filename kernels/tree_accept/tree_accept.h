#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "common/base/ids.h"
#include "common/tensor/view.h"
#include "common/threads/thread_pool.h"

namespace arborist::kernels {

// Walks each tree from its root: while a child of the current node carries the token chosen at that node,
// descend (siblings carry distinct tokens; otherwise the first one counts). The walk is bounded by the node
// count, whatever the pointers say: a parent[i] outside [0, i), parent[0] other than -1, or tree bounds that
// are empty, outside the rows or further apart than kTreeAcceptMaxNodes set `error`, and nothing of that tree
// is accepted. An empty tree is also what padding is.
inline constexpr int kTreeAcceptMaxNodes = 256;

struct TreeAcceptArgs {
  View1<const int32_t> tree_begin;  // [trees + 1] first row of each tree in the arrays below
  View1<const TokenId> token;       // [rows]
  View1<const int32_t> parent;      // [rows] index inside the tree, -1 for its root
  View1<const TokenId> chosen;      // [rows] the target's choice after each row
  View1<int32_t> path;  // [rows]: from tree_begin[i], the accepted indices inside the tree, root (0) first
  View1<int32_t> path_length;  // [trees] root included, >= 1
  View1<TokenId> bonus;        // [trees] the choice at the last accepted node: the next root; -1 on error
  View1<int32_t> error;        // [trees] 0, or 1 when a pointer was out of range (path_length 0 then)
  // [trees], or empty: how many rows from tree_begin are the tree's nodes, where trees lie at a fixed stride
  // with room behind them. Cut to the tree's rows; below 1 is an empty tree.
  View1<const int32_t> nodes{};
};

// Where the nodes of a tree end: with tree_begin and nodes as above.
constexpr int64_t TreeAcceptEnd(const TreeAcceptArgs& args, int64_t tree) {
  const int64_t begin = args.tree_begin[tree], end = args.tree_begin[tree + 1];
  if (args.nodes.size == 0) {
    return end;
  }
  const int64_t nodes_end = begin + args.nodes[tree];
  return nodes_end < end ? nodes_end : end;
}

// Checks sizes only: pointers are data of the device and end in `error`.
absl::Status ValidateTreeAccept(const TreeAcceptArgs& args);

namespace reference {
absl::Status TreeAccept(const TreeAcceptArgs& args, StreamView stream);
}
namespace cpu {
absl::Status TreeAccept(const TreeAcceptArgs& args, StreamView stream);
}
namespace cuda {
absl::Status TreeAccept(const TreeAcceptArgs& args, StreamView stream);
}

}  // namespace arborist::kernels
