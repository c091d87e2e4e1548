#include "kernels/accepted_moves/accepted_moves.h"

#include <vector>

#include "gtest/gtest.h"

namespace arborist::kernels {
namespace {

using Moves = absl::Status (*)(const AcceptedMovesArgs&, StreamView);

struct Result {
  std::vector<int32_t> from, to, feature_slot;
};

Result Moved(Moves moves, const std::vector<int32_t>& tree_begin, const std::vector<int32_t>& path,
             const std::vector<int32_t>& path_length, const std::vector<int32_t>& write_slot) {
  const auto rows = static_cast<int64_t>(write_slot.size());
  ThreadPool pool(1);
  Result result{std::vector<int32_t>(rows, -7), std::vector<int32_t>(rows, -7),
                std::vector<int32_t>(rows, -7)};
  EXPECT_TRUE(moves({.tree_begin = {tree_begin.data(), static_cast<int64_t>(tree_begin.size())},
                     .path = {path.data(), rows},
                     .path_length = {path_length.data(), static_cast<int64_t>(path_length.size())},
                     .write_slot = {write_slot.data(), rows},
                     .from = {result.from.data(), rows},
                     .to = {result.to.data(), rows},
                     .feature_slot = {result.feature_slot.data(), rows}},
                    {.threads = &pool})
                  .ok());
  return result;
}

TEST(AcceptedMovesTest, ThePathZeroTwoThreeMovesTwoRowsAndKeepsItsFeaturesInOrder) {
  for (const Moves moves : {reference::AcceptedMoves, cpu::AcceptedMoves}) {
    const Result r = Moved(moves, {0, 4}, {0, 2, 3, -1}, {3}, {10, 11, 12, 13});
    EXPECT_EQ(r.from, (std::vector<int32_t>{-1, 12, 13, -1}));
    EXPECT_EQ(r.to, (std::vector<int32_t>{-1, 11, 12, -1}));
    EXPECT_EQ(r.feature_slot, (std::vector<int32_t>{10, -1, 11, 12}));
  }
}

TEST(AcceptedMovesTest, TreesEmptyTreesPromptRowsAndPaddingStandSideBySide) {
  for (const Moves moves : {reference::AcceptedMoves, cpu::AcceptedMoves}) {
    // A root alone, an empty tree, two nodes of three, a tree of which nothing is kept, a chunk of two,
    // padding.
    const Result r = Moved(moves, {0, 1, 1, 4, 6}, {0, 0, 2, 9, 0, 1, 5, 5, 5}, {1, 0, 2, 0},
                           {7, 20, 21, 22, 30, 31, 40, 41, -1});
    EXPECT_EQ(r.from, (std::vector<int32_t>{-1, -1, 22, -1, -1, -1, -1, -1, -1}));
    EXPECT_EQ(r.to, (std::vector<int32_t>{-1, -1, 21, -1, -1, -1, -1, -1, -1}));
    EXPECT_EQ(r.feature_slot, (std::vector<int32_t>{7, 20, -1, 21, -1, -1, 40, 41, -1}));
  }
}

TEST(AcceptedMovesTest, APathThatLeavesItsTreeMovesNothingFromThereOn) {
  for (const Moves moves : {reference::AcceptedMoves, cpu::AcceptedMoves}) {
    for (const int32_t outside : {-1, 3, 1 << 30}) {
      const Result r = Moved(moves, {0, 3}, {0, outside, 1}, {3}, {10, 11, 12});
      EXPECT_EQ(r.from, (std::vector<int32_t>{-1, -1, -1}));
      EXPECT_EQ(r.feature_slot, (std::vector<int32_t>{10, -1, -1}));
    }
    const Result r = Moved(moves, {0, 2}, {0, 1}, {1000}, {10, 11});  // longer than the tree
    EXPECT_EQ(r.feature_slot, (std::vector<int32_t>{10, 11}));
  }
}

TEST(AcceptedMovesTest, WrongSizesAreNamed) {
  std::vector<int32_t> memory(8);
  const auto sized = [&](int64_t size) { return View1<int32_t>{memory.data(), size}; };
  const auto constant = [&](int64_t size) { return View1<const int32_t>{memory.data(), size}; };
  AcceptedMovesArgs args{constant(3), constant(4), constant(2), constant(4), sized(4), sized(4), sized(4)};
  EXPECT_EQ(ValidateAcceptedMoves(args).message(), "");
  args.from.size = 3;
  EXPECT_EQ(ValidateAcceptedMoves(args).message(), "from.size=3, expected 4, one for each row");
  args.path_length.size = 3;
  EXPECT_EQ(ValidateAcceptedMoves(args).message(), "path_length.size=3, expected 2, one for each tree");
  args.tree_begin.size = 0;
  EXPECT_EQ(ValidateAcceptedMoves(args).message(), "tree_begin.size=0, expected trees + 1");
}

}  // namespace
}  // namespace arborist::kernels
