#pragma once

#include <cstdint>
#include <vector>

#include "common/tree/token_tree.h"
#include "kernels/tree_attention_mla/attention_case.h"

// A random tree behind a random prefix, laid out once as a tree and once as if a node's path had been
// committed: what the exactness of speculation rests on is that both give the same bits.
namespace arborist::kernels::testing {

// A prefix of `prefix` committed positions, then a tree whose root is at position `prefix`.
struct Story {
  AttentionShape shape;
  std::vector<Vector> prefix_key;  // [prefix]
  std::vector<int32_t> parent;     // [nodes]
  std::vector<Vector> node_key;    // [nodes]
  std::vector<Vector> node_query;  // [nodes]

  int64_t prefix() const { return static_cast<int64_t>(prefix_key.size()); }
  int nodes() const { return static_cast<int>(parent.size()); }

  // From the root to the node.
  std::vector<int> Path(int node) const {
    std::vector<int> path;
    for (; node >= 0; node = parent[node]) {
      path.insert(path.begin(), node);
    }
    return path;
  }
};

inline Story RandomStory(Random& random, const AttentionShape& shape, int64_t prefix, int nodes, bool deep) {
  Story s{.shape = shape, .prefix_key = {}, .parent = {}, .node_key = {}, .node_query = {}};
  for (int64_t p = 0; p < prefix; ++p) {
    s.prefix_key.push_back(random.Normal(s.shape.width(), 1));
  }
  std::vector<int> depth;
  for (int node = 0; node < nodes; ++node) {
    // Mostly extends the node before, up to the depth limit, or hangs anywhere.
    int32_t parent = node == 0 ? -1 : static_cast<int32_t>(random.Below(static_cast<uint32_t>(node)));
    if (deep && node > 0 && random.Below(10) != 0 && depth[node - 1] < kMaxTreeDepth) {
      parent = node - 1;
    }
    if (node > 0 && depth[parent] >= kMaxTreeDepth) {
      parent = 0;
    }
    depth.push_back(parent < 0 ? 0 : depth[parent] + 1);
    s.parent.push_back(parent);
    s.node_key.push_back(random.Normal(s.shape.width(), 1));
    s.node_query.push_back(random.Normal(s.shape.heads * s.shape.width(), 1));
  }
  return s;
}

inline std::vector<int32_t> WritePrefix(AttentionCase& c, int32_t sequence, const Story& s) {
  std::vector<int32_t> keys;
  for (int64_t p = 0; p < s.prefix(); ++p) {
    keys.push_back(c.Slot(sequence, p));
    c.Write(keys.back(), s.prefix_key[p]);
  }
  return keys;
}

// All nodes in one call, their rows in slots behind the prefix in node order.
inline void AddTree(AttentionCase& c, const Story& s) {
  const int32_t sequence = c.AddSequence(s.prefix() + s.nodes());
  const std::vector<int32_t> prefix = WritePrefix(c, sequence, s);
  for (int node = 0; node < s.nodes(); ++node) {
    c.Write(c.Slot(sequence, s.prefix() + node), s.node_key[node]);
  }
  for (int node = 0; node < s.nodes(); ++node) {
    std::vector<int32_t> keys = prefix;
    for (int ancestor : s.Path(node)) {
      keys.push_back(c.Slot(sequence, s.prefix() + ancestor));
    }
    c.AddRow(sequence, s.node_query[node], keys);
  }
}

// The node's path committed contiguously behind the prefix; rows for its last `rows` members in one call: one
// is a plain step, all of them a chunk.
inline void AddCommitted(AttentionCase& c, const Story& s, int node, int rows) {
  const std::vector<int> path = s.Path(node);
  const auto length = static_cast<int>(path.size());
  const int32_t sequence = c.AddSequence(s.prefix() + length);
  std::vector<int32_t> keys = WritePrefix(c, sequence, s);
  for (int depth = 0; depth < length; ++depth) {
    keys.push_back(c.Slot(sequence, s.prefix() + depth));
    c.Write(keys.back(), s.node_key[path[depth]]);
  }
  for (int depth = length - rows; depth < length; ++depth) {
    c.AddRow(sequence, s.node_query[path[depth]], {keys.begin(), keys.begin() + s.prefix() + depth + 1});
  }
}

inline int64_t PagesFor(int64_t positions) { return positions / kPageRows + 1; }

}  // namespace arborist::kernels::testing
