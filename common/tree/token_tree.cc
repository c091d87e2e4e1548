#include "common/tree/token_tree.h"

#include <array>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"

namespace arborist {
namespace {

absl::Status NodeError(int node, absl::string_view field, const std::string& value,
                       const std::string& expected) {
  return absl::InvalidArgumentError(
      absl::StrCat("tree.", field, "[", node, "]=", value, ", expected ", expected));
}

// The children seen so far, for trees of any size that is valid. On the stack and open-addressed: every tree
// of every sequence is checked while the verifier's step waits for it.
class ChildSet {
 public:
  // False if it is there already. At most kMaxTreeBudget.
  bool Insert(int32_t parent, TokenId token) {
    const uint64_t key = static_cast<uint64_t>(parent) << 32 | static_cast<uint32_t>(Raw(token));
    size_t slot = (key * 0x9E3779B97F4A7C15u) >> (64 - kBits);
    for (; keys_[slot] != kNone; slot = (slot + 1) % keys_.size()) {
      if (keys_[slot] == key) {
        return false;
      }
    }
    keys_[slot] = key;
    return true;
  }

 private:
  static constexpr int kBits = 9;
  static constexpr uint64_t kNone = ~uint64_t{0};  // no parent is negative
  static_assert(kMaxTreeBudget < 1 << kBits);

  std::array<uint64_t, 1 << kBits> keys_ = [] {
    std::array<uint64_t, 1 << kBits> keys;
    keys.fill(kNone);
    return keys;
  }();
};

}  // namespace

absl::Status ValidateTokenTree(const TokenTree& tree, TokenId root, const TreeLimits& limits) {
  Check(limits.max_budget <= kMaxTreeBudget, "no tree is larger than kMaxTreeBudget");
  const size_t nodes = tree.token.size();
  if (nodes == 0) {
    return absl::InvalidArgumentError("tree.token has 0 nodes, expected at least the root");
  }
  if (tree.parent.size() != nodes || tree.score.size() != nodes) {
    return absl::InvalidArgumentError(absl::StrCat("tree has ", nodes, " tokens, ", tree.parent.size(),
                                                   " parents and ", tree.score.size(),
                                                   " scores, expected equal counts"));
  }
  if (nodes > static_cast<size_t>(limits.max_budget) + 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("tree has ", nodes - 1, " drafted nodes, expected at most ", limits.max_budget));
  }
  if (tree.token[0] != root) {
    return NodeError(0, "token", absl::StrCat(Raw(tree.token[0])),
                     absl::StrCat("the last committed token ", Raw(root)));
  }
  if (tree.parent[0] != -1) {
    return NodeError(0, "parent", absl::StrCat(tree.parent[0]), "-1 for the root");
  }
  if (tree.score[0] != 0.0f) {
    return NodeError(0, "score", absl::StrCat(tree.score[0]), "0 for the root");
  }
  std::vector<int32_t> depth(nodes, 0);
  ChildSet children;
  for (size_t i = 1; i < nodes; ++i) {
    const int node = static_cast<int>(i);
    if (Raw(tree.token[i]) < 0 || Raw(tree.token[i]) >= limits.vocab_size) {
      return NodeError(node, "token", absl::StrCat(Raw(tree.token[i])),
                       absl::StrCat("an id in [0, ", limits.vocab_size, ")"));
    }
    if (tree.parent[i] < 0 || tree.parent[i] >= node) {
      return NodeError(node, "parent", absl::StrCat(tree.parent[i]),
                       absl::StrCat("an index in [0, ", node, ")"));
    }
    depth[i] = depth[tree.parent[i]] + 1;
    if (depth[i] > limits.max_depth) {
      return NodeError(node, "depth", absl::StrCat(depth[i]), absl::StrCat("at most ", limits.max_depth));
    }
    if (!std::isfinite(tree.score[i]) || !(tree.score[i] <= tree.score[i - 1])) {
      return NodeError(node, "score", absl::StrCat(tree.score[i]),
                       absl::StrCat("a finite value <= score[", node - 1, "]=", tree.score[i - 1]));
    }
    if (!children.Insert(tree.parent[i], tree.token[i])) {
      return NodeError(node, "token", absl::StrCat(Raw(tree.token[i])),
                       absl::StrCat("a token that no sibling under node ", tree.parent[i], " has"));
    }
  }
  return absl::OkStatus();
}

std::vector<int32_t> TreeDepths(std::span<const int32_t> parent) {
  std::vector<int32_t> depth(parent.size(), 0);
  for (size_t i = 1; i < parent.size(); ++i) {
    Check(parent[i] >= 0 && parent[i] < static_cast<int32_t>(i), "a parent must come before its child");
    depth[i] = depth[parent[i]] + 1;
  }
  return depth;
}

void CutToPrefix(TokenTree& tree, int nodes) {
  Check(nodes >= 1, "a tree keeps at least its root");
  if (nodes >= tree.nodes()) {
    return;
  }
  tree.token.resize(nodes);
  tree.parent.resize(nodes);
  tree.score.resize(nodes);
}

}  // namespace arborist
