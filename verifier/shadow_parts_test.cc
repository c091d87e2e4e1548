// The parts of shadow verification by themselves: which rows and keys, and what counts as a fault.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <set>
#include <vector>

#include "common/threads/thread_pool.h"
#include "kernels/testing/random_tensor.h"
#include "verifier/shadow_compare.h"
#include "verifier/shadow_rows.h"

namespace arborist::verifier {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

// Root at position 62 of pages 5 and 2; nodes 0 - 1 - 3 and 0 - 2, so that node 3 has position 64 but lies at
// logical row 65.
class ShadowRowsTest : public ::testing::Test {
 protected:
  const std::vector<int32_t> pages_ = {5, 2};
  const std::vector<TokenId> token_ = {TokenId{1}, TokenId{2}, TokenId{3}, TokenId{4}};
  const std::vector<int32_t> parent_ = {-1, 0, 0, 1};
  const std::vector<StepTree> trees_ = {{pages_, 62, token_, parent_, {}}};
  const std::vector<int32_t> chunk_pages_ = {9};
  const std::vector<TokenId> chunk_tokens_ = {TokenId{7}, TokenId{8}};
  const std::vector<StepChunk> chunks_ = {{chunk_pages_, 3, chunk_tokens_}};
  std::mt19937_64 random_{1};
};

TEST_F(ShadowRowsTest, KeysAreTheCommittedPositionsThenTheAncestorsByDepth) {
  const std::vector<ShadowRow> rows = ChooseRows(trees_, {}, 0, 1, random_);
  ASSERT_THAT(rows, SizeIs(1));
  const ShadowRow& deepest = rows[0];
  EXPECT_EQ(deepest.row, 3);
  EXPECT_EQ(deepest.tree, 0);
  EXPECT_EQ(deepest.position, 64);
  std::vector<int32_t> expected;
  for (int32_t position = 0; position < 62; ++position) {
    expected.push_back(5 * 64 + position);
  }
  // Logical rows 62, 63 and 65.
  expected.insert(expected.end(), {5 * 64 + 62, 5 * 64 + 63, 2 * 64 + 1});
  EXPECT_EQ(deepest.key_slot, expected);
  EXPECT_THAT(NodeSlots(trees_[0]), ElementsAre(5 * 64 + 62, 5 * 64 + 63, 2 * 64, 2 * 64 + 1));
}

TEST_F(ShadowRowsTest, RowsAreDistinctAndNoMoreThanThereAre) {
  const std::vector<ShadowRow> rows = ChooseRows(trees_, chunks_, 0, 64, random_);
  std::set<int64_t> distinct;
  for (const ShadowRow& row : rows) {
    distinct.insert(row.row);
    EXPECT_EQ(row.key_slot.size(), static_cast<size_t>(row.position) + 1);
    if (row.row == 5) {  // the chunk's second token
      EXPECT_EQ(row.tree, -1);
      EXPECT_EQ(row.position, 4);
      EXPECT_THAT(row.key_slot, ElementsAre(9 * 64, 9 * 64 + 1, 9 * 64 + 2, 9 * 64 + 3, 9 * 64 + 4));
    }
  }
  EXPECT_THAT(distinct, ElementsAre(0, 1, 2, 3, 4, 5));
  EXPECT_THAT(ChooseRows({}, chunks_, -1, 1, random_), SizeIs(1));
}

TEST_F(ShadowRowsTest, LongContextsGiveFewerRowsButAlwaysOne) {
  const int32_t root = kMostShadowKeys / 3;
  const std::vector<int32_t> pages(static_cast<size_t>(root / 64 + 2), 0);
  const std::vector<StepTree> trees = {{pages, root, token_, parent_, {}}};
  EXPECT_THAT(ChooseRows(trees, {}, 0, 4, random_), SizeIs(2));
  const std::vector<int32_t> more_pages(static_cast<size_t>(kMostShadowKeys / 64 + 2), 0);
  const std::vector<StepTree> longer = {{more_pages, kMostShadowKeys + 5, token_, parent_, {}}};
  EXPECT_THAT(ChooseRows(longer, {}, 0, 4, random_), SizeIs(1));
}

class ShadowCompareTest : public ::testing::Test {
 protected:
  // One row at position `last` with two heads, answered by the oracle itself.
  ShadowSample AttentionSample(int32_t last) {
    ShadowSample sample;
    sample.limit = 1e-3;
    sample.rows.push_back({.row = 0, .tree = 0, .node = 0, .position = last, .key_slot = {}});
    ShadowSample::Attention& attention = sample.attention.emplace();
    attention.heads = 2;
    attention.latent = 6;
    attention.rope = 2;
    attention.scale = 0.3f;
    attention.query = random_.Normals(2 * 8);
    const std::vector<float> keys = random_.Normals((last + 1) * 8);
    const auto* bytes = reinterpret_cast<const std::byte*>(keys.data());
    attention.cache.emplace_back(bytes, bytes + keys.size() * sizeof(float));
    attention.out.assign(2 * 6, 0.0f);
    // The oracle's own answer, one element at a time: the difference to zero is its size.
    for (size_t i = 0; i < attention.out.size(); ++i) {
      attention.out[i] = Attend(attention, keys, i / 6, i % 6);
    }
    return sample;
  }
  static float Attend(const ShadowSample::Attention& attention, const std::vector<float>& keys, size_t head,
                      size_t column) {
    double sum = 0, value = 0;
    for (size_t key = 0; key < keys.size() / 8; ++key) {
      double score = 0;
      for (size_t c = 0; c < 8; ++c) {
        score += static_cast<double>(attention.query[head * 8 + c]) * static_cast<double>(keys[key * 8 + c]);
      }
      const double weight = std::exp(score * static_cast<double>(attention.scale));
      sum += weight;
      value += weight * static_cast<double>(keys[key * 8 + column]);
    }
    return static_cast<float>(value / sum);
  }
  static ShadowReport Only(const ShadowSample& sample, ShadowKernel kernel) {
    const std::vector<ShadowReport> reports = CompareSample(sample, {kernel});
    EXPECT_THAT(reports, SizeIs(1));
    return reports.empty() ? ShadowReport{} : reports[0];
  }

  kernels::testing::Random random_;
};

TEST_F(ShadowCompareTest, AttentionOverAllKeysIsWithinTheLimitOnBothSidesOfABlock) {
  SCOPED_TRACE(random_.seed());
  for (const int32_t last : {0, 1, 62, 63, 126, 127, 128, 300}) {
    const ShadowReport report = Only(AttentionSample(last), ShadowKernel::kTreeAttentionMla);
    EXPECT_FALSE(report.fault) << last;
    EXPECT_EQ(report.difference.values, 12);
    EXPECT_LT(report.difference.relative, 1e-5) << last;
  }
}

TEST_F(ShadowCompareTest, ARelativeDifferenceIsAFaultAboveTheLimitOnly) {
  SCOPED_TRACE(random_.seed());
  ShadowSample sample = AttentionSample(200);
  const std::vector<float> right = sample.attention->out;
  for (const float factor : {1.0005f, 1.002f}) {
    for (size_t i = 0; i < right.size(); ++i) {
      sample.attention->out[i] = right[i] * factor;
    }
    const ShadowReport report = Only(sample, ShadowKernel::kTreeAttentionMla);
    EXPECT_NEAR(report.difference.relative, factor - 1, 1e-5);
    EXPECT_EQ(report.fault, factor > 1.001f);
  }
}

TEST_F(ShadowCompareTest, NotANumberIsAFaultInTheLiveResultAndInTheKeys) {
  SCOPED_TRACE(random_.seed());
  ShadowSample live = AttentionSample(200);
  live.attention->out[3] = kNaN;
  const ShadowReport in_live = Only(live, ShadowKernel::kTreeAttentionMla);
  EXPECT_TRUE(in_live.fault);
  EXPECT_EQ(in_live.difference.non_finite, 1);
  ShadowSample keys = AttentionSample(200);
  reinterpret_cast<float*>(keys.attention->cache[0].data())[8] = kNaN;
  EXPECT_TRUE(Only(keys, ShadowKernel::kTreeAttentionMla).fault);
}

class ShadowRouteTest : public ShadowCompareTest {
 protected:
  // One row, top 1 of two experts, answered by the CPU's kernel.
  static ShadowSample Routed(float first, float second) {
    ShadowSample sample;
    sample.limit = 1e-3;
    sample.rows.push_back({.row = 0, .tree = 0, .node = 0, .position = 0, .key_slot = {}});
    ShadowSample::Route& route = sample.route.emplace();
    route.experts = 2;
    route.rule.top_k = 1;
    route.logits = {first, second};
    route.expert.assign(1, -1);
    route.weight.assign(1, kNaN);
    ThreadPool threads(1);
    kernels::MoeRouteArgs args = route.rule;
    args.logits = {route.logits.data(), 1, 2, 2};
    args.expert = {route.expert.data(), 1, 1, 1};
    args.weight = {route.weight.data(), 1, 1, 1};
    EXPECT_TRUE(kernels::cpu::MoeRoute(args, {.threads = &threads}).ok());
    return sample;
  }
};

TEST_F(ShadowRouteTest, AnotherExpertIsAMismatch) {
  ShadowSample sample = Routed(0.5f, 1.5f);
  EXPECT_FALSE(Only(sample, ShadowKernel::kMoeRoute).fault);
  EXPECT_EQ(sample.route->expert[0], 1);
  sample.route->expert[0] = 0;
  const ShadowReport report = Only(sample, ShadowKernel::kMoeRoute);
  EXPECT_TRUE(report.fault);
  EXPECT_EQ(report.difference.mismatches, 1);
}

TEST_F(ShadowRouteTest, ScoresThatAreEqualInFp32AloneAreNoFault) {
  // Both sigmoids round to 1, and the lower id wins; in double the second is larger.
  const ShadowSample sample = Routed(18, 19);
  EXPECT_EQ(sample.route->expert[0], 0);
  EXPECT_FALSE(Only(sample, ShadowKernel::kMoeRoute).fault);
}

TEST_F(ShadowRouteTest, ALogitThatIsNotANumberIsAFault) {
  ShadowSample sample = Routed(0.5f, 1.5f);
  sample.route->logits[0] = kNaN;
  const ShadowReport report = Only(sample, ShadowKernel::kMoeRoute);
  EXPECT_TRUE(report.fault);
  EXPECT_EQ(report.difference.non_finite, 1);
}

TEST_F(ShadowCompareTest, OneByteOfAMovedRowIsAMismatch) {
  ShadowSample sample;
  sample.limit = 1e-3;
  sample.tree = {.token = {TokenId{1}, TokenId{2}, TokenId{3}},
                 .parent = {-1, 0, 0},
                 .chosen = {TokenId{3}, TokenId{9}, TokenId{8}},
                 .path = {0, 2},
                 .bonus = TokenId{8}};
  ShadowSample::Moves& moves = sample.moves.emplace();
  moves.row_bytes = 4;
  for (int i = 0; i < 12; ++i) {
    moves.before.push_back(static_cast<std::byte>(i));
  }
  moves.after = moves.before;
  moves.after.erase(moves.after.begin() + 4, moves.after.begin() + 8);
  EXPECT_FALSE(Only(sample, ShadowKernel::kTreeAccept).fault);
  EXPECT_FALSE(Only(sample, ShadowKernel::kKvCompact).fault);
  moves.after[5] ^= std::byte{1};
  EXPECT_EQ(Only(sample, ShadowKernel::kKvCompact).difference.mismatches, 1);
  sample.tree->bonus = TokenId{9};
  EXPECT_EQ(Only(sample, ShadowKernel::kTreeAccept).difference.mismatches, 1);
}

TEST_F(ShadowCompareTest, WhatASampleLacksIsNotReported) {
  EXPECT_THAT(CompareSample({}, {kShadowKernels.begin(), kShadowKernels.end()}), IsEmpty());
}

}  // namespace
}  // namespace arborist::verifier
