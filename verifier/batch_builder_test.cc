#include "verifier/batch_builder.h"

#include <gtest/gtest.h>

#include <numeric>
#include <random>
#include <vector>

#include "kernels/tree_attention_mla/tree_attention_mla.h"

namespace arborist::verifier {
namespace {

using kernels::kMaxTailKeys;

constexpr int kPages = 8;

StepBatch MakeBatch() {
  StepBatch batch;
  batch.Reserve(300, 4, kPages);
  return batch;
}

// All keys of a row, as slots, in order.
std::vector<int32_t> Keys(const StepBatch& batch, int row) {
  std::vector<int32_t> keys;
  for (int32_t key = 0; key < batch.prefix_blocks[row] * 64; ++key) {
    keys.push_back(batch.page_table[batch.sequence[row] * kPages + key / 64] * 64 + key % 64);
  }
  for (int32_t key = 0; key < batch.tail_count[row]; ++key) {
    keys.push_back(batch.tail_slot[row * kMaxTailKeys + key]);
  }
  return keys;
}

const std::vector<int32_t> kTable = {5, 2, 7, 0, 3};

TEST(BatchBuilderTest, ATreeNodeSeesThePrefixItsAncestorsAndItself) {
  StepBatch batch = MakeBatch();
  // 0 -> {1, 2}, 2 -> {3, 4}, 1 -> 5
  const std::vector<TokenId> token = {TokenId{10}, TokenId{11}, TokenId{12},
                                      TokenId{13}, TokenId{14}, TokenId{15}};
  const std::vector<int32_t> parent = {-1, 0, 0, 2, 2, 1};
  AppendTree(kTable, 3, token, parent, batch);
  ASSERT_EQ(batch.rows, 6);
  const std::vector<int32_t> depth = {0, 1, 1, 2, 2, 2};
  for (int i = 0; i < 6; ++i) {
    EXPECT_EQ(batch.position[i], 3 + depth[i]);
    EXPECT_EQ(batch.write_slot[i], 5 * 64 + 3 + i);
    EXPECT_EQ(batch.token[i], token[i]);
    EXPECT_EQ(batch.parent[i], parent[i]);
  }
  const int32_t page = 5 * 64;
  EXPECT_EQ(Keys(batch, 4), (std::vector<int32_t>{page, page + 1, page + 2, page + 3, page + 5, page + 7}));
  EXPECT_EQ(Keys(batch, 5), (std::vector<int32_t>{page, page + 1, page + 2, page + 3, page + 4, page + 8}));
  EXPECT_EQ(batch.logits_row, (std::vector<int32_t>{0, 1, 2, 3, 4, 5}));
}

TEST(BatchBuilderTest, AChunkRowSeesAllPositionsUpToItsOwn) {
  StepBatch batch = MakeBatch();
  const std::vector<TokenId> tokens(150, TokenId{1});
  AppendChunk(kTable, 100, tokens, batch);
  for (int row = 0; row < 150; ++row) {
    std::vector<int32_t> expected;
    for (int32_t position = 0; position <= 100 + row; ++position) {
      expected.push_back(SlotOf(kTable, position));
    }
    ASSERT_EQ(Keys(batch, row), expected) << row;
    EXPECT_EQ(batch.position[row], 100 + row);
    EXPECT_EQ(batch.write_slot[row], SlotOf(kTable, 100 + row));
    EXPECT_EQ(batch.parent[row], row - 1);
  }
  EXPECT_TRUE(batch.logits_row.empty());
}

TEST(BatchBuilderTest, ADeepChainAtEveryRootHasTheKeysOfAChunk) {
  // Slots differ from a chunk's nowhere, since a chain's node i lies at its position.
  for (int32_t root = 0; root < 200; ++root) {
    StepBatch tree = MakeBatch();
    StepBatch chunk = MakeBatch();
    const std::vector<TokenId> tokens(64, TokenId{1});
    std::vector<int32_t> parent(64);
    std::iota(parent.begin(), parent.end(), -1);
    AppendTree(kTable, root, tokens, parent, tree);
    AppendChunk(kTable, root, tokens, chunk);
    for (int row = 0; row < 64; ++row) {
      ASSERT_EQ(Keys(tree, row), Keys(chunk, row)) << root << " " << row;
      ASSERT_EQ(tree.prefix_blocks[row], kernels::PrefixBlocks(root + row));
    }
  }
}

TEST(BatchBuilderTest, SequencesKeepTheirRowsAndTablesApart) {
  StepBatch batch = MakeBatch();
  const std::vector<int32_t> other = {1, 6};
  const TokenId root[] = {TokenId{9}};
  const int32_t no_parent[] = {-1};
  const std::vector<TokenId> tokens(5, TokenId{1});
  AppendTree(kTable, 70, root, no_parent, batch);
  AppendChunk(other, 62, tokens, batch);
  EXPECT_EQ(batch.sequences, 2);
  EXPECT_EQ(batch.first_row[1], 1);
  EXPECT_EQ(batch.first_row[2], 6);
  EXPECT_EQ(batch.write_slot[0], 2 * 64 + 6);
  EXPECT_EQ(batch.write_slot[3], 6 * 64 + 0);
  EXPECT_EQ(batch.page_table[kPages + 1], 6);
  EXPECT_EQ(batch.page_table[kPages + 2], -1);
  EXPECT_EQ(batch.parent[1], -1);
  EXPECT_EQ(batch.logits_row, (std::vector<int32_t>{0}));
  batch.Clear();
  EXPECT_EQ(batch.rows, 0);
  EXPECT_TRUE(batch.logits_row.empty());
}

}  // namespace
}  // namespace arborist::verifier
