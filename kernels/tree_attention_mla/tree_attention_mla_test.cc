#include "kernels/tree_attention_mla/tree_attention_mla.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <vector>

#include "kernels/exact_math/exact_math.h"
#include "kernels/simd/isa.h"
#include "kernels/tree_attention_mla/attention_case.h"

namespace arborist::kernels {
namespace {

using kernels::testing::AttentionCase;
using kernels::testing::AttentionShape;
using kernels::testing::Random;
using kernels::testing::RunAttention;
using kernels::testing::Vector;

// Several sequences, each with one row at a position of its own choice.
AttentionCase RandomCase(const AttentionShape& shape, const std::vector<int64_t>& positions) {
  Random random;
  int64_t pages = 0;
  for (int64_t position : positions) {
    pages += position / kPageRows + 1;
  }
  AttentionCase c(shape, pages);
  for (int64_t position : positions) {
    const int32_t sequence = c.AddSequence(position + 1);
    std::vector<int32_t> keys;
    for (int64_t p = 0; p <= position; ++p) {
      keys.push_back(c.Slot(sequence, p));
      c.Write(keys.back(), random.Normal(shape.width(), 1));
    }
    c.AddRow(sequence, random.Normal(shape.heads * shape.width(), 1), keys);
  }
  return c;
}

// The contract of the header in plain loops, written apart from the kernel: one part is (m, l, acc).
struct Part {
  float m;
  float l;
  std::vector<float> acc;
};

float LaneSum(const std::vector<float>& terms) {
  float lanes[16] = {};
  for (size_t i = 0; i < terms.size(); ++i) {
    lanes[i % 16] += terms[i];
  }
  for (int half : {8, 4, 2, 1}) {
    for (int lane = 0; lane < half; ++lane) {
      lanes[lane] += lanes[lane + half];
    }
  }
  return lanes[0];
}

float LaneDot(const float* a, const float* b, int64_t count) {
  float lanes[16] = {};
  for (int64_t i = 0; i < (count + 15) / 16 * 16; ++i) {
    lanes[i % 16] = std::fma(i < count ? a[i] : 0.0f, i < count ? b[i] : 0.0f, lanes[i % 16]);
  }
  return LaneSum({lanes, lanes + 16});
}

Part BlockPart(const TreeAttentionMlaArgs& args, const float* query, const std::vector<int32_t>& slots) {
  const int64_t width = args.latent + args.rope;
  std::vector<float> weight;
  for (int32_t slot : slots) {
    weight.push_back(args.scale *
                     LaneDot(query, static_cast<const float*>(args.cache) + slot * width, width));
  }
  Part part{*std::max_element(weight.begin(), weight.end()), 0, std::vector<float>(args.latent)};
  for (float& value : weight) {
    value = ExactExp(value - part.m);
  }
  part.l = LaneSum(weight);
  for (size_t j = 0; j < slots.size(); ++j) {
    for (int64_t column = 0; column < args.latent; ++column) {
      part.acc[column] = std::fma(weight[j], static_cast<const float*>(args.cache)[slots[j] * width + column],
                                  part.acc[column]);
    }
  }
  return part;
}

Part MergeOf(const std::vector<Part>& parts) {
  Part merged = parts[0];
  for (size_t i = 1; i < parts.size(); ++i) {
    const float m = std::max(merged.m, parts[i].m);
    const float a = ExactExp(merged.m - m);
    const float b = ExactExp(parts[i].m - m);
    merged.m = m;
    merged.l = std::fma(merged.l, a, parts[i].l * b);
    for (size_t column = 0; column < merged.acc.size(); ++column) {
      merged.acc[column] = std::fma(merged.acc[column], a, parts[i].acc[column] * b);
    }
  }
  return merged;
}

std::vector<uint32_t> InContractOrder(const TreeAttentionMlaArgs& args, int64_t row) {
  std::vector<uint32_t> bits;
  for (int64_t head = 0; head < args.query.heads; ++head) {
    const float* query = args.query.at(row, head);
    std::vector<Part> splits;
    std::vector<Part> blocks;
    for (int32_t block = 0; block < args.prefix_blocks[row]; ++block) {
      std::vector<int32_t> slots;
      for (int32_t offset = 0; offset < 64; ++offset) {
        slots.push_back(args.page_table.row(args.sequence[row])[block] * 64 + offset);
      }
      blocks.push_back(BlockPart(args, query, slots));
      if (blocks.size() == 16 || block + 1 == args.prefix_blocks[row]) {
        splits.push_back(MergeOf(blocks));
        blocks.clear();
      }
    }
    const int32_t* tail = args.tail_slot.row(row);
    const int32_t count = args.tail_count[row];
    std::vector<Part> chunks = {BlockPart(args, query, {tail, tail + std::min(count, 64)})};
    if (count > 64) {
      chunks.push_back(BlockPart(args, query, {tail + 64, tail + count}));
    }
    std::vector<Part> all;
    if (!splits.empty()) {
      all.push_back(MergeOf(splits));
    }
    all.push_back(MergeOf(chunks));
    const Part total = MergeOf(all);
    for (float value : total.acc) {
      bits.push_back(std::bit_cast<uint32_t>(value / total.l));
    }
  }
  return bits;
}

TEST(TreeAttentionMlaTest, RowsEqualTheContractsOrderBitForBitOnEveryIsa) {
  for (const AttentionShape& shape : {AttentionShape{.heads = 1, .latent = 1, .rope = 0},
                                      AttentionShape{.heads = 3, .latent = 24, .rope = 8},
                                      AttentionShape{.heads = 8, .latent = 40, .rope = 16},
                                      AttentionShape{.heads = 5, .latent = 128, .rope = 32},
                                      AttentionShape{.heads = 35, .latent = 70, .rope = 3}}) {
    AttentionCase c = RandomCase(shape, {0, 1, 62, 63, 64, 126, 127, 128, 191, 300, 1086, 1087, 1151, 2200});
    std::vector<float> out;
    std::vector<std::byte> scratch;
    const TreeAttentionMlaArgs args = c.Args(out, scratch, 1);
    std::vector<std::vector<uint32_t>> expected;
    for (int64_t row = 0; row < c.rows(); ++row) {
      expected.push_back(InContractOrder(args, row));
    }
    for (Isa isa : SupportedIsas()) {
      ForceIsa(isa);  // the best one stays in force
      for (int threads : {1, 2, 5}) {
        EXPECT_EQ(RunAttention(c, threads), expected) << Name(isa) << " latent " << shape.latent;
      }
    }
  }
}

TEST(TreeAttentionMlaTest, TheMeaningIsSoftmaxAttentionOverTheRowsKeys) {
  const AttentionShape shape{.heads = 4, .latent = 128, .rope = 32};
  AttentionCase c = RandomCase(shape, {0, 5, 63, 127, 500, 1500});
  ThreadPool pool(2);
  std::vector<float> expected;
  std::vector<float> got;
  std::vector<std::byte> scratch;
  ASSERT_TRUE(reference::TreeAttentionMla(c.Args(expected, scratch, 2), {}).ok());
  ASSERT_TRUE(cpu::TreeAttentionMla(c.Args(got, scratch, 2), {.threads = &pool}).ok());
  for (size_t i = 0; i < got.size(); ++i) {
    // Weights sum to 1 and values are below 5: some 1e3 float roundings of their products, and exp's few ulp
    // of scores below 30.
    EXPECT_TRUE(std::abs(got[i] - expected[i]) <= 2e-5f) << i << ": " << got[i] << " " << expected[i];
  }
}

TEST(TreeAttentionMlaTest, HugeScoresGiveTheLargestKeysValueAndNoNan) {
  const AttentionShape shape{.heads = 1, .latent = 16, .rope = 0};
  Random random;
  AttentionCase c(shape, 4);
  const int32_t sequence = c.AddSequence(200);
  std::vector<int32_t> keys;
  for (int p = 0; p < 200; ++p) {
    keys.push_back(c.Slot(sequence, p));
    Vector key(16, 0.0f);
    key[0] = p == 70 ? 1e4f : -1e4f * static_cast<float>(p + 1);
    key[1] = static_cast<float>(p);
    c.Write(keys.back(), key);
  }
  Vector query(16, 0.0f);
  query[0] = 1e3f;
  c.AddRow(sequence, query, keys);
  EXPECT_EQ(std::bit_cast<float>(RunAttention(c, 1)[0][1]), 70.0f);
}

TEST(TreeAttentionMlaTest, PaddingRowsGiveZerosAndChangeNoOtherRow) {
  const AttentionShape shape{.heads = 3, .latent = 24, .rope = 8};
  AttentionCase c = RandomCase(shape, {0, 70, 200});
  const auto alone = RunAttention(c, 1);
  c.AddPaddingRow();
  c.AddPaddingRow();
  std::vector<float> out;
  std::vector<std::byte> scratch;
  for (int threads : {1, 3}) {
    auto rows = RunAttention(c, threads);
    for (int i = 0; i < 2; ++i) {
      EXPECT_EQ(rows.back(), std::vector<uint32_t>(shape.heads * shape.latent, 0u));
      rows.pop_back();
    }
    EXPECT_EQ(rows, alone);
  }
  ASSERT_TRUE(reference::TreeAttentionMla(c.Args(out, scratch, 1), {}).ok());
  for (size_t i = out.size() - 2 * shape.heads * shape.latent; i < out.size(); ++i) {
    EXPECT_EQ(std::bit_cast<uint32_t>(out[i]), 0u);
  }
}

TEST(TreeAttentionMlaTest, ATableOfSlotsGivesTheBitsOfATableOfPages) {
  AttentionCase c = RandomCase({}, {0, 127, 300, 1500});
  const auto paged = RunAttention(c, 2);
  c.UseSlotTable();
  EXPECT_EQ(RunAttention(c, 2), paged);
  std::vector<float> out;
  std::vector<std::byte> scratch;
  TreeAttentionMlaArgs args = c.Args(out, scratch, 1);
  EXPECT_EQ(args.TableBlocks(), 24);
  ASSERT_TRUE(reference::TreeAttentionMla(args, {}).ok());
  const_cast<int32_t&>(args.page_table.data[3 * 24 * 64 + 100]) = static_cast<int32_t>(args.slots);
  EXPECT_THAT(std::string(reference::TreeAttentionMla(args, {}).message()),
              ::testing::StartsWith("page_table[3][100]="));
}

TEST(TreeAttentionMlaTest, NoRowsIsFine) {
  AttentionCase c(AttentionShape{}, 1);
  c.AddSequence(1);
  EXPECT_TRUE(RunAttention(c, 2).empty());
}

std::string Refusal(void (*change)(TreeAttentionMlaArgs&)) {
  AttentionCase c = RandomCase({}, {200, 3});
  std::vector<float> out;
  std::vector<std::byte> scratch;
  TreeAttentionMlaArgs args = c.Args(out, scratch, 1);
  change(args);
  ThreadPool pool(1);
  const absl::Status status = cpu::TreeAttentionMla(args, {.threads = &pool});
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  for (float value : out) {
    EXPECT_TRUE(std::isnan(value));
  }
  return std::string(status.message());
}

TEST(TreeAttentionMlaTest, WhatWouldReadOutsideTheCacheIsRefusedByFieldIndexAndValue) {
  using Args = TreeAttentionMlaArgs;
  EXPECT_EQ(Refusal([](Args& a) { const_cast<int32_t&>(a.tail_slot.data[3]) = 320; }),
            "tail_slot[0][3]=320, expected a slot in [0, 320)");
  EXPECT_EQ(Refusal([](Args& a) { const_cast<int32_t&>(a.tail_slot.data[kMaxTailKeys]) = -1; }),
            "tail_slot[1][0]=-1, expected a slot in [0, 320)");
  EXPECT_EQ(Refusal([](Args& a) { const_cast<int32_t&>(a.tail_count.data[1]) = -1; }),
            "tail_count[1]=-1, expected 0..127");
  EXPECT_EQ(Refusal([](Args& a) { const_cast<int32_t&>(a.tail_count.data[0]) = 128; }),
            "tail_count[0]=128, expected 0..127");
  EXPECT_EQ(Refusal([](Args& a) { const_cast<int32_t&>(a.page_table.data[1]) = 5; }),
            "page_table[0][1]=5, expected a page in [0, 5)");
  EXPECT_EQ(Refusal([](Args& a) { const_cast<int32_t&>(a.prefix_blocks.data[0]) = 5; }),
            "prefix_blocks[0]=5, expected 0..4");
  EXPECT_EQ(Refusal([](Args& a) { const_cast<int32_t&>(a.sequence.data[1]) = 2; }),
            "sequence[1]=2, expected an index in [0, 2)");
  EXPECT_EQ(Refusal([](Args& a) { const_cast<int32_t&>(a.sequence.data[0]) = 1; }) != "", true);
  EXPECT_EQ(Refusal([](Args& a) { const_cast<int32_t&>(a.tail_count.data[0]) = 0; }),
            "prefix_blocks[0]=2, expected 0 in a padding row (tail_count 0)");
  EXPECT_EQ(Refusal([](Args& a) { a.cache_dtype = DType::kBF16; }),
            "cache_dtype=BF16, expected F32 on the CPU");
  EXPECT_EQ(Refusal([](Args& a) { a.cache_dtype = DType::kF16; }), "cache_dtype=F16, expected F32 or BF16");
  EXPECT_EQ(Refusal([](Args& a) { a.page_rows = 16; }), "page_rows=16, expected 64 or 1");
  EXPECT_EQ(Refusal([](Args& a) { a.rope = 9; }), "query.columns=32, expected latent + rope = 33");
  EXPECT_THAT(Refusal([](Args& a) { a.scratch.size = 100; }),
              ::testing::StartsWith("scratch.size=100, expected"));
  EXPECT_EQ(Refusal([](Args& a) { a.out.rows = 1; }), "out is [1, 2, 24], expected [2, 2, 24]");
}

}  // namespace
}  // namespace arborist::kernels
