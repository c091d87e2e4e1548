#include "kernels/tree_rows/tree_rows.h"

#include <numeric>
#include <random>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/tree_rows/tree_rows_case.h"

namespace arborist::kernels {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;
using testing::TreeRowsCase;
using testing::TreeRowsOut;

// One tree 0 -> {1 -> {3}, 2}, its rows in slots 900, 901, ...; the table is the identity.
TreeRowsCase SmallTree(int32_t root_position, int page_rows) {
  std::mt19937_64 engine(1);
  TreeRowsCase c({.trees = 1, .nodes = 1, .page_rows = page_rows, .positions = 512, .padding = 0}, engine);
  c.tree_begin = {0, 4};
  c.nodes = {4};
  c.parent = {-1, 0, 0, 1};
  c.root_position = {root_position};
  std::iota(c.page_table.begin(), c.page_table.end(), 0);
  c.write_slot = {900, 901, 902, 903};
  return c;
}

std::vector<int32_t> Tail(const TreeRowsOut& out, int64_t row) {
  const auto begin = out.tail_slot.begin() + row * kMaxTailKeys;
  return {begin, begin + out.tail_count[row]};
}

TEST(TreeRowsTest, ANodeSeesCommittedPositionsThenItsAncestorsAndItself) {
  for (const int page_rows : {1, 64}) {
    const TreeRowsOut out = SmallTree(3, page_rows).Reference();
    EXPECT_THAT(out.position, ::testing::ElementsAre(3, 4, 4, 5));
    EXPECT_THAT(out.prefix_blocks, Each(0));
    EXPECT_THAT(Tail(out, 0), ::testing::ElementsAre(0, 1, 2, 900));
    EXPECT_THAT(Tail(out, 2), ::testing::ElementsAre(0, 1, 2, 900, 902));
    EXPECT_THAT(Tail(out, 3), ::testing::ElementsAre(0, 1, 2, 900, 901, 903));
  }
}

TEST(TreeRowsTest, WholeBlocksLeaveTheTailWhenAPositionReaches64KeysMore) {
  const TreeRowsOut out = SmallTree(126, 64).Reference();  // node 1 stands at 127, the first with a block
  EXPECT_THAT(out.prefix_blocks, ::testing::ElementsAre(0, 1, 1, 1));
  EXPECT_THAT(out.tail_count, ::testing::ElementsAre(127, 64, 64, 65));
  EXPECT_EQ(Tail(out, 1).front(), 64);
  EXPECT_EQ(Tail(out, 3).back(), 903);
}

TEST(TreeRowsTest, WhatCannotBeANodeBecomesPadding) {
  TreeRowsCase c = SmallTree(3, 64);
  c.parent = {-1, 2, 0, 1};  // row 1 points forward, row 3 hangs on it
  TreeRowsOut out = c.Reference();
  EXPECT_THAT(out.tail_count, ::testing::ElementsAre(4, 0, 5, 0));
  c.parent = {-1, 0, 0, 1};
  c.write_slot[1] = -1;  // a padding row is no node; its descendant keeps a key that is nowhere
  c.nodes = {3};
  out = c.Reference();
  EXPECT_THAT(out.tail_count, ::testing::ElementsAre(4, 0, 5, 0));
  c.root_position = {-1};
  EXPECT_THAT(c.Reference().tail_count, Each(0));
}

TEST(TreeRowsTest, DepthSixtyThreeIsTheLast) {
  TreeRowsCase c = SmallTree(1000, 1);
  c.parent.assign(66, -1);
  std::iota(c.parent.begin(), c.parent.end(), -1);
  c.tree_begin = {0, 66};
  c.nodes = {66};
  c.write_slot.resize(66);
  std::iota(c.write_slot.begin(), c.write_slot.end(), 5000);
  const TreeRowsOut out = c.Reference();
  EXPECT_EQ(out.tail_count[63], 64 + (1063 - 63) % 64);
  EXPECT_EQ(out.tail_count[64], 0);
  EXPECT_EQ(out.tail_count[65], 0);
}

TEST(TreeRowsTest, SizesAreCheckedAndNamed) {
  TreeRowsCase c = SmallTree(3, 64);
  TreeRowsArgs args = c.Args();
  args.page_rows = 16;
  EXPECT_THAT(ValidateTreeRows(args).message(), HasSubstr("page_rows=16, expected 1 or 64"));
  args = c.Args();
  args.root_position.size = 2;
  EXPECT_THAT(ValidateTreeRows(args).message(), HasSubstr("root_position.size=2, expected 1"));
  args = c.Args();
  EXPECT_THAT(ValidateTreeRows(args).message(), HasSubstr("sequence.size=0, expected 4"));
}

}  // namespace
}  // namespace arborist::kernels
