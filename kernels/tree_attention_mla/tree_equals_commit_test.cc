// The property that speculation rests on: a tree node's output is, bit for bit, that of a plain step after
// the node's ancestors were committed one behind the other, and that of the same row inside a prompt chunk.
#include <gtest/gtest.h>

#include <vector>

#include "kernels/simd/isa.h"
#include "kernels/tree_attention_mla/testing/tree_forest.h"

namespace arborist::kernels {
namespace {

using testing::AddCommitted;
using testing::AddTree;
using testing::AttentionCase;
using testing::AttentionShape;
using testing::PagesFor;
using testing::Random;
using testing::RandomStory;
using testing::RootsAroundBlocks;
using testing::RowRange;
using testing::RunAttention;
using testing::Story;
using testing::WritePrefix;

constexpr AttentionShape kShape{.heads = 2, .latent = 24, .rope = 8};

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

void ExpectEveryNodeAt(const std::vector<int64_t>& roots, int nodes, int chain) {
  Random random;
  testing::ExpectEveryNodeAt(random, kShape, roots, nodes, chain, [](AttentionCase& c) {
    return [&c](const std::vector<RowRange>& calls) { return RunAttention(c, 2, calls); };
  });
}

TEST(TreeEqualsCommitTest, ForEveryNodeAroundEveryBlockAndSplit) {
  ExpectEveryNodeAt({0, 1}, 20, 6);
  ExpectEveryNodeAt(RootsAroundBlocks(64, 2304), 20, 6);
  ExpectEveryNodeAt(RootsAroundBlocks(3072, 4096, 16), 20, 6);
}

TEST(TreeEqualsCommitTest, ForEveryNodeOfTheLargestAndDeepestTrees) {
  ExpectEveryNodeAt({1, 127, 1087}, 256, kMaxTreeDepth + 1);
}

TEST(TreeEqualsCommitTest, AcrossEveryBlockBoundaryOfShortPrefixes) {
  Random random;
  for (int64_t prefix = 0; prefix <= 200; ++prefix) {
    ExpectTreeEqualsCommits(RandomStory(random, kShape, prefix, 24, prefix % 2 == 0), random, 3);
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
    ExpectTreeEqualsCommits(RandomStory(random, kShape, prefix, 16, true), random, 2);
  }
}

TEST(TreeEqualsCommitTest, WithTheDeepestTreesTheWireAllows) {
  Random random;
  for (int64_t prefix : {1, 60, 63, 64, 65, 126, 127, 128, 1023, 1024, 1087}) {
    ExpectTreeEqualsCommits(RandomStory(random, kShape, prefix, 200, true), random, 3);
  }
}

TEST(TreeEqualsCommitTest, NeighboursThreadsAndIsaChangeNoBit) {
  Random random;
  std::vector<Story> stories;
  int64_t pages = 4;
  for (int64_t prefix : {0, 5, 63, 190, 700, 1100}) {
    stories.push_back(RandomStory(random, kShape, prefix, 1 + static_cast<int>(random.Below(40)), true));
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
  const Story s = RandomStory(random, kShape, 100, 24, true);
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
