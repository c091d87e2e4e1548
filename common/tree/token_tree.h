#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "common/base/ids.h"

namespace arborist {

// A tree of budget N has N drafted nodes and N + 1 rows; a tree never has more.
inline constexpr int kMaxTreeBudget = 255;
// Drafted depth of the deepest node; the exact attention rule relies on it (all tree rows fall into a row's
// tail).
inline constexpr int kMaxTreeDepth = 63;

// The noun of the system. Node 0 is the root: the last committed token. Every other node has a parent with a
// smaller index, so a cycle cannot be written down, and every prefix of the list is itself a valid tree.
struct TokenTree {
  std::vector<TokenId> token;   // [nodes], nodes >= 1
  std::vector<int32_t> parent;  // [nodes], parent[0] = -1, 0 <= parent[i] < i
  std::vector<float>
      score;  // [nodes], log P(node is accepted): score[0] = 0, finite, non-increasing in the list

  int nodes() const { return static_cast<int>(token.size()); }

  static TokenTree RootOnly(TokenId root) { return {{root}, {-1}, {0.0f}}; }
};

struct TreeLimits {
  int32_t vocab_size = 0;           // every token is in [0, vocab_size)
  int max_budget = kMaxTreeBudget;  // drafted nodes, the root not counted; at most kMaxTreeBudget
  int max_depth = kMaxTreeDepth;
};

// Checks every rule above, and that siblings carry distinct tokens. InvalidArgument names the node, the value
// and what was expected. `root` is the token the verifier holds as the last committed one.
absl::Status ValidateTokenTree(const TokenTree& tree, TokenId root, const TreeLimits& limits);

// depth[i] = edges from the root to node i. `parent` must satisfy parent[i] < i.
std::vector<int32_t> TreeDepths(std::span<const int32_t> parent);

// Keeps the first `nodes` nodes (>= 1), which form a valid tree.
void CutToPrefix(TokenTree& tree, int nodes);

}  // namespace arborist
