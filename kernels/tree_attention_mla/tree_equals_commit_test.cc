// The property that speculation rests on: a tree node's output is, bit for bit, that of a plain step after
// the node's ancestors were committed one behind the other, and that of the same row inside a prompt chunk.
#include <gtest/gtest.h>

#include <vector>

#include "common/tree/token_tree.h"
#include "kernels/simd/isa.h"
#include "kernels/tree_attention_mla/attention_case.h"

namespace arborist::kernels {
namespace {

using testing::AttentionCase;
using testing::AttentionShape;
using testing::Random;
using testing::RunAttention;
using testing::Vector;

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

Story RandomStory(Random& random, int64_t prefix, int nodes, bool deep) {
  Story s{.shape = {.heads = 2, .latent = 24, .rope = 8},
          .prefix_key = {},
          .parent = {},
          .node_key = {},
          .node_query = {}};
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
    depth.push_back(parent < 0 ? 0 : depth[parent] + 1);
    s.parent.push_back(parent);
    s.node_key.push_back(random.Normal(s.shape.width(), 1));
    s.node_query.push_back(random.Normal(s.shape.heads * s.shape.width(), 1));
  }
  return s;
}

std::vector<int32_t> WritePrefix(AttentionCase& c, int32_t sequence, const Story& s) {
  std::vector<int32_t> keys;
  for (int64_t p = 0; p < s.prefix(); ++p) {
    keys.push_back(c.Slot(sequence, p));
    c.Write(keys.back(), s.prefix_key[p]);
  }
  return keys;
}

// All nodes in one call, their rows in slots behind the prefix in node order.
void AddTree(AttentionCase& c, const Story& s) {
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
void AddCommitted(AttentionCase& c, const Story& s, int node, int rows) {
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

int64_t PagesFor(int64_t positions) { return positions / kPageRows + 1; }

void ExpectTreeEqualsCommits(const Story& s, Random& random, int checked_nodes) {
  AttentionCase tree(s.shape, PagesFor(s.prefix() + s.nodes()) + 3);
  AddTree(tree, s);
  const auto tree_rows = RunAttention(tree, 2);
  for (int i = 0; i < checked_nodes; ++i) {
    const int node =
        i == 0 ? s.nodes() - 1 : static_cast<int>(random.Below(static_cast<uint32_t>(s.nodes())));
    const std::vector<int> path = s.Path(node);
    const auto length = static_cast<int>(path.size());
    AttentionCase step(s.shape, PagesFor(s.prefix() + length) + 2);
    AddCommitted(step, s, node, 1);
    ASSERT_EQ(tree_rows[node], RunAttention(step, 1)[0]) << "prefix " << s.prefix() << " node " << node;
    AttentionCase chunk(s.shape, PagesFor(s.prefix() + length) + 2);
    AddCommitted(chunk, s, node, length);
    const auto chunk_rows = RunAttention(chunk, 2);
    for (int depth = 0; depth < length; ++depth) {
      ASSERT_EQ(tree_rows[path[depth]], chunk_rows[depth]) << "prefix " << s.prefix() << " depth " << depth;
    }
  }
}

TEST(TreeEqualsCommitTest, AcrossEveryBlockBoundaryOfShortPrefixes) {
  Random random;
  for (int64_t prefix = 0; prefix <= 200; ++prefix) {
    ExpectTreeEqualsCommits(RandomStory(random, prefix, 24, prefix % 2 == 0), random, 3);
  }
}

TEST(TreeEqualsCommitTest, AcrossSplitBoundaries) {
  // Splits end at 1024 and 2048; a row's prefix ends 63 and more positions before the row.
  Random random;
  std::vector<int64_t> prefixes;
  for (int64_t prefix = 1018; prefix <= 1032; ++prefix) {
    prefixes.push_back(prefix);
    prefixes.push_back(prefix + 63);
    prefixes.push_back(prefix + 1024);
    prefixes.push_back(prefix + 1024 + 63);
  }
  for (int64_t prefix : prefixes) {
    ExpectTreeEqualsCommits(RandomStory(random, prefix, 16, true), random, 2);
  }
}

TEST(TreeEqualsCommitTest, WithTheDeepestTreesTheWireAllows) {
  Random random;
  for (int64_t prefix : {1, 60, 63, 64, 65, 126, 127, 128, 1023, 1024, 1087}) {
    ExpectTreeEqualsCommits(RandomStory(random, prefix, 200, true), random, 3);
  }
}

TEST(TreeEqualsCommitTest, NeighboursThreadsAndIsaChangeNoBit) {
  Random random;
  std::vector<Story> stories;
  int64_t pages = 4;
  for (int64_t prefix : {0, 5, 63, 190, 700, 1100}) {
    stories.push_back(RandomStory(random, prefix, 1 + static_cast<int>(random.Below(40)), true));
    pages += PagesFor(prefix + stories.back().nodes());
  }
  std::vector<std::vector<uint32_t>> alone;
  for (const Story& s : stories) {
    AttentionCase c(s.shape, PagesFor(s.prefix() + s.nodes()));
    AddTree(c, s);
    const auto rows = RunAttention(c, 1);
    alone.insert(alone.end(), rows.begin(), rows.end());
  }
  for (Isa isa : SupportedIsas()) {
    ForceIsa(isa);  // the best one stays in force
    for (int threads : {1, 2, 3, 8}) {
      AttentionCase together(stories[0].shape, pages);
      for (const Story& s : stories) {
        AddTree(together, s);
      }
      EXPECT_EQ(RunAttention(together, threads), alone) << Name(isa) << " threads " << threads;
    }
  }
}

TEST(TreeEqualsCommitTest, APlantedFaultInTheKeyListIsSeen) {
  Random random;
  const Story s = RandomStory(random, 100, 24, true);
  const int node = s.nodes() - 1;
  AttentionCase right(s.shape, 8);
  AddCommitted(right, s, node, 1);
  const auto expected = RunAttention(right, 1);
  // The last ancestor left out, and two keys of the tail exchanged.
  AttentionCase wrong(s.shape, 8);
  const int32_t sequence = wrong.AddSequence(s.prefix() + s.nodes());
  std::vector<int32_t> keys = WritePrefix(wrong, sequence, s);
  for (int ancestor : s.Path(node)) {
    keys.push_back(wrong.Slot(sequence, s.prefix() + ancestor));
    wrong.Write(keys.back(), s.node_key[ancestor]);
  }
  std::vector<int32_t> without = keys;
  without.erase(without.end() - 2);
  std::vector<int32_t> exchanged = keys;
  std::swap(exchanged[exchanged.size() - 2], exchanged[exchanged.size() - 20]);
  wrong.AddRow(sequence, s.node_query[node], without);
  wrong.AddRow(sequence, s.node_query[node], exchanged);
  wrong.AddRow(sequence, s.node_query[node], keys);
  const auto got = RunAttention(wrong, 1);
  EXPECT_NE(got[0], expected[0]);
  EXPECT_NE(got[1], expected[0]);
  EXPECT_EQ(got[2], expected[0]);
}

}  // namespace
}  // namespace arborist::kernels
