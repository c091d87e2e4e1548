#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/tree/token_tree.h"
#include "kernels/tree_attention_mla/testing/tree_story.h"

// What speculation rests on, for every node of random trees: its output is, bit for bit, that of a plain step
// after its ancestors were committed, and that of the same position in a prompt chunk of any length.
namespace arborist::kernels::testing {

// A tree without a prefix. Its first `chain` nodes are one path; of the others every second extends the node
// before it.
inline Story RandomTree(Random& random, const AttentionShape& shape, int nodes, int chain) {
  Story tree = RandomStory(random, shape, 0, nodes, false);
  std::vector<int> depth = {0};
  for (int node = 1; node < nodes; ++node) {
    int32_t parent = node - 1;
    if (node >= chain && random.Below(2) == 0) {
      parent = static_cast<int32_t>(random.Below(static_cast<uint32_t>(node)));
    }
    parent = depth[parent] < kMaxTreeDepth ? parent : 0;
    depth.push_back(depth[parent] + 1);
    tree.parent[node] = parent;
  }
  return tree;
}

// Nodes that are nobody's parent: their paths hold every node.
inline std::vector<int> Leaves(const Story& tree) {
  std::vector<int> leaves;
  for (int node = 0; node < tree.nodes(); ++node) {
    if (std::find(tree.parent.begin(), tree.parent.end(), node) == tree.parent.end()) {
      leaves.push_back(node);
    }
  }
  return leaves;
}

// Committed positions, the same for every tree of a case, and what stands behind some of them: a tree, and
// each of its paths as if it had been committed. Full pages of the prefix are shared, as by a prefix cache.
class Forest {
 public:
  // Keeps a reference to the prefix.
  Forest(const std::vector<Vector>& prefix, const AttentionShape& shape, int64_t pages)
      : prefix_(prefix), case_(shape, pages), unused_query_(shape.heads * shape.width(), 0.5f) {
    trunk_ = case_.AddSequence(static_cast<int64_t>(prefix.size()));
    for (size_t position = 0; position < prefix.size(); ++position) {
      case_.Write(case_.Slot(trunk_, static_cast<int64_t>(position)), prefix[position]);
    }
  }

  // Pages that `tree` takes beside the prefix.
  static int64_t PagesOf(const Story& tree) {
    return PagesFor(tree.nodes() + kPageRows) + 3 * static_cast<int64_t>(Leaves(tree).size());
  }

  // `tree` with its root at position `root`. Some chunks of its paths begin up to 70 positions before.
  void Plant(int64_t root, const Story& tree, Random& random) {
    Planted planted{.root = root, .first_row = case_.rows(), .nodes = tree.nodes(), .paths = {}};
    int32_t sequence = 0;
    const std::vector<int32_t> before = Branch(root, tree.nodes(), sequence);
    for (int node = 0; node < tree.nodes(); ++node) {
      case_.Write(case_.Slot(sequence, root + node), tree.node_key[node]);
    }
    for (int node = 0; node < tree.nodes(); ++node) {
      std::vector<int32_t> keys = before;
      for (const int ancestor : tree.Path(node)) {
        keys.push_back(case_.Slot(sequence, root + ancestor));
      }
      node_row_.push_back(case_.rows());
      case_.AddRow(sequence, tree.node_query[node], keys);
    }
    for (const int leaf : Leaves(tree)) {
      const int64_t lead = random.Below(2) == 0 ? 0 : std::min<int64_t>(root, random.Below(71));
      planted.paths.push_back(Commit(root, tree, leaf, lead, planted.first_row));
    }
    planted_.push_back(std::move(planted));
  }

  AttentionCase& attention() { return case_; }

  // `run(calls)`: the bits of each call's rows of attention(), one after another. It is called once, since
  // where tests share a GPU every wait for it is long.
  template <typename Run>
  void ExpectEveryNodeIsItsStepAndItsRowOfAChunk(Random& random, const Run& run) {
    std::vector<RowRange> calls;
    for (const Planted& planted : planted_) {
      calls.push_back({planted.first_row, planted.nodes});
      AddStepsAndChunks(planted, random, calls);
    }
    if (case_.rows() <= kMostRowsTogether) {
      calls.push_back({0, case_.rows()});
    }
    const auto bits = run(calls);
    // A node's bits where its tree was computed.
    std::vector<const std::vector<uint32_t>*> expected(case_.rows());
    size_t at = 0;
    for (const RowRange& call : calls) {
      for (int64_t row = call.begin; row < call.begin + call.rows; ++row, ++at) {
        const int64_t node = node_row_[row];
        if (node < 0) {
          continue;
        }
        if (expected[node] == nullptr) {
          expected[node] = &bits[at];
        }
        ASSERT_EQ(bits[at], *expected[node])
            << "in a call of " << call.rows << " rows, heads " << case_.shape().heads << " latent "
            << case_.shape().latent << ", " << Where(node);
      }
    }
  }

 private:
  // A path as a chunk: `lead` rows of the prefix, then its nodes from the root down.
  struct Committed {
    int64_t first_row;
    int64_t lead;
    std::vector<int> nodes;
  };
  struct Planted {
    int64_t root;
    int64_t first_row;
    int nodes;
    std::vector<Committed> paths;
  };

  // Every node as a step, and every path as one chunk or in chunks of many lengths.
  void AddStepsAndChunks(const Planted& planted, Random& random, std::vector<RowRange>& calls) {
    std::vector<bool> stepped(planted.nodes);
    for (const Committed& path : planted.paths) {
      const int64_t tree = path.first_row + path.lead, end = tree + static_cast<int64_t>(path.nodes.size());
      for (int64_t row = tree; row < end; ++row) {
        if (!stepped[path.nodes[row - tree]]) {
          stepped[path.nodes[row - tree]] = true;
          calls.push_back({row, 1});
        }
      }
      if (random.Below(2) == 0) {
        calls.push_back({path.first_row, end - path.first_row});
        continue;
      }
      static constexpr int64_t kLengths[] = {1, 2, 3, 5, 7, 13, 17, 33};
      for (int64_t begin = tree; begin < end;) {
        const int64_t rows = std::min(kLengths[random.Below(std::size(kLengths))], end - begin);
        calls.push_back({begin, rows});
        begin += rows;
      }
    }
    ASSERT_EQ(std::count(stepped.begin(), stepped.end(), true), planted.nodes);
  }

  std::string Where(int64_t node_row) const {
    const auto planted = std::find_if(planted_.rbegin(), planted_.rend(),
                                      [node_row](const Planted& tree) { return tree.first_row <= node_row; });
    return absl::StrCat("root at ", planted->root, ", node ", node_row - planted->first_row);
  }

  // A new sequence with the trunk's positions below `root` and room for `rows` more; returns their slots.
  std::vector<int32_t> Branch(int64_t root, int64_t rows, int32_t& sequence) {
    sequence = case_.AddSequence(root + rows, trunk_, root / kPageRows);
    std::vector<int32_t> slots;
    for (int64_t position = 0; position < root; ++position) {
      slots.push_back(case_.Slot(sequence, position));
      if (position >= root / kPageRows * kPageRows) {
        case_.Write(slots.back(), prefix_[position]);
      }
    }
    return slots;
  }

  Committed Commit(int64_t root, const Story& tree, int leaf, int64_t lead, int64_t first_row) {
    Committed path{.first_row = case_.rows(), .lead = lead, .nodes = tree.Path(leaf)};
    int32_t sequence = 0;
    const std::vector<int32_t> before = Branch(root, static_cast<int64_t>(path.nodes.size()), sequence);
    for (int64_t position = root - lead; position < root; ++position) {
      node_row_.push_back(-1);
      case_.AddRow(sequence, unused_query_, {before.begin(), before.begin() + position + 1});
    }
    std::vector<int32_t> keys = before;
    for (const int node : path.nodes) {
      keys.push_back(case_.Slot(sequence, static_cast<int64_t>(keys.size())));
      case_.Write(keys.back(), tree.node_key[node]);
      node_row_.push_back(first_row + node);
      case_.AddRow(sequence, tree.node_query[node], keys);
    }
    return path;
  }

  static constexpr int64_t kMostRowsTogether = 4000;

  const std::vector<Vector>& prefix_;
  AttentionCase case_;
  Vector unused_query_;  // of a chunk's rows before the tree
  int32_t trunk_ = 0;
  std::vector<Planted> planted_;
  std::vector<int64_t> node_row_;  // of each row, the row of the same node in its tree; -1: of the prefix
};

// Trees of `nodes` nodes with their roots at `roots`, a dozen to a case; `begin_case(attention
// case)` returns what Forest calls run.
template <typename Begin>
void ExpectEveryNodeAt(Random& random, const AttentionShape& shape, const std::vector<int64_t>& roots,
                       int nodes, int chain, const Begin& begin_case) {
  std::vector<Vector> prefix;
  for (int64_t position = 0; position < *std::max_element(roots.begin(), roots.end()); ++position) {
    prefix.push_back(random.Normal(shape.width(), 1));
  }
  constexpr size_t kAtOnce = 12;
  for (size_t begin = 0; begin < roots.size() && !::testing::Test::HasFailure(); begin += kAtOnce) {
    const size_t end = std::min(begin + kAtOnce, roots.size());
    std::vector<Story> trees;
    int64_t pages = PagesFor(static_cast<int64_t>(prefix.size()));
    for (size_t i = begin; i < end; ++i) {
      trees.push_back(RandomTree(random, shape, nodes, chain));
      pages += Forest::PagesOf(trees.back());
    }
    Forest forest(prefix, shape, pages);
    for (size_t i = begin; i < end; ++i) {
      forest.Plant(roots[i], trees[i - begin], random);
    }
    forest.ExpectEveryNodeIsItsStepAndItsRowOfAChunk(random, begin_case(forest.attention()));
  }
}

// Roots around every end of a block from `first` to `longest`: of a page (a multiple of 64), and of a block
// of the exact rule, 63 positions later. Within a tree and at its root.
inline std::vector<int64_t> RootsAroundBlocks(int64_t first, int64_t longest, int64_t every = 1) {
  std::vector<int64_t> roots;
  for (int64_t end = first; end <= longest; end += every * kPageRows) {
    for (const int64_t offset : {-7, 0, 56, 63}) {
      roots.push_back(end + offset);
    }
  }
  return roots;
}

}  // namespace arborist::kernels::testing
