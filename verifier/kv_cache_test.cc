#include "verifier/kv_cache.h"

#include <gtest/gtest.h>

#include <numeric>
#include <utility>
#include <vector>

#include "kernels/kv_compact/kv_compact.h"
#include "verifier/testing/host_planes.h"

namespace arborist::verifier {
namespace {

std::vector<TokenId> Tokens(std::initializer_list<int32_t> ids) {
  std::vector<TokenId> tokens;
  for (const int32_t id : ids) {
    tokens.push_back(TokenId{id});
  }
  return tokens;
}

class KvCacheTest : public testing::Test {
 protected:
  KvCacheTest() : cache_(HostPlanes({.layers = 2, .pages = 8, .latent_row = 3, .feature_row = 4}), 16, 1) {}

  // Every row of every plane carries its own slot.
  void Number() {
    KvPlanes& planes = cache_.planes();
    for (int64_t slot = 0; slot < planes.slots(); ++slot) {
      for (int64_t i = 0; i < 3; ++i) {
        Latent(0)[slot * 3 + i] = static_cast<float>(slot);
        Latent(1)[slot * 3 + i] = static_cast<float>(1000 + slot);
      }
      for (int64_t i = 0; i < 4; ++i) {
        planes.features()[slot * 4 + i].bits = static_cast<uint16_t>(slot);
      }
    }
  }

  float* Latent(int layer) { return static_cast<float*>(cache_.planes().latent(layer)); }

  KvCache cache_;
  ThreadPool pool_{1};
};

TEST_F(KvCacheTest, CompactKeepsAcceptedRowsInOrderInEveryPlane) {
  Number();
  // Path 0,2,3 from slot 100: 'to' of the second move is 'from' of the first.
  const std::vector<int32_t> from = {102, 103};
  const std::vector<int32_t> to = {101, 102};
  ASSERT_TRUE(
      cache_.Compact(kernels::CpuKernels(), {from.data(), 2}, {to.data(), 2}, {.threads = &pool_}).ok());
  const std::vector<std::pair<int, int>> rows = {{100, 100}, {101, 102}, {102, 103}, {103, 103}, {104, 104}};
  for (const auto& [slot, was] : rows) {
    EXPECT_EQ(Latent(0)[slot * 3 + 2], static_cast<float>(was));
    EXPECT_EQ(Latent(1)[slot * 3], static_cast<float>(1000 + was));
    EXPECT_EQ(cache_.planes().features()[slot * 4 + 3].bits, was);
  }
}

TEST_F(KvCacheTest, ManyMovesAreAsOneListOfThem) {
  // Trees of 130 rows that skip node 1, so that every row moves, and lists end within a tree.
  constexpr int kTrees = 8, kRows = 130;
  KvCache cache(HostPlanes({.layers = 1, .pages = 20, .latent_row = 1, .feature_row = 0}),
                kernels::kMaxCompactMoves, 1);
  auto* latent = static_cast<float*>(cache.planes().latent(0));
  std::iota(latent, latent + cache.planes().slots(), 0.0f);
  std::vector<int32_t> from, to;
  for (int tree = 0; tree < kTrees; ++tree) {
    for (int row = 1; row + 1 < kRows; ++row) {
      to.push_back(tree * kRows + row);
      from.push_back(tree * kRows + row + 1);
    }
  }
  const auto moves = static_cast<int64_t>(from.size());
  ASSERT_GT(moves, kernels::kMaxCompactMoves);
  ASSERT_TRUE(
      cache.Compact(kernels::CpuKernels(), {from.data(), moves}, {to.data(), moves}, {.threads = &pool_})
          .ok());
  for (int64_t move = 0; move < moves; ++move) {
    ASSERT_EQ(latent[to[move]], static_cast<float>(from[move])) << "move " << move;
  }
}

TEST_F(KvCacheTest, CompactOfNothingDoesNothing) {
  EXPECT_TRUE(cache_.Compact(kernels::CpuKernels(), {}, {}, {.threads = &pool_}).ok());
}

TEST_F(KvCacheTest, TotalBytesCountLatentAndFeaturePlanes) {
  EXPECT_EQ(cache_.planes().total_bytes(), 8u * 64 * (2 * 3 * 4 + 4 * 2));
}

class KeepCommonPrefixTest : public KvCacheTest {
 protected:
  KvInheritance Inheritance(std::vector<TokenId> tokens, int32_t computed, int64_t pages) {
    KvInheritance from;
    from.pages = cache_.pool().NewSequence();
    EXPECT_TRUE(from.pages.Resize(pages));
    from.tokens = std::move(tokens);
    from.computed = computed;
    return from;
  }
};

TEST_F(KeepCommonPrefixTest, KeepsUpToTheFirstDifferentToken) {
  KvInheritance from = Inheritance(Tokens({1, 2, 3, 4, 5}), 4, 3);
  EXPECT_EQ(KeepCommonPrefix(Tokens({1, 2, 9, 4, 5}), from), 2);
  EXPECT_EQ(from.pages.count(), 1);
  EXPECT_EQ(cache_.pool().free_pages(), 7);
}

TEST_F(KeepCommonPrefixTest, KeepsNoMoreThanIsComputed) {
  KvInheritance from = Inheritance(Tokens({1, 2, 3, 4, 5}), 3, 1);
  EXPECT_EQ(KeepCommonPrefix(Tokens({1, 2, 3, 4, 5, 6}), from), 3);
}

TEST_F(KeepCommonPrefixTest, TheLastTokenIsTheRootAndIsComputedAgain) {
  KvInheritance from = Inheritance(Tokens({1, 2, 3, 4, 5}), 4, 1);
  EXPECT_EQ(KeepCommonPrefix(Tokens({1, 2, 3}), from), 2);
}

TEST_F(KeepCommonPrefixTest, NothingInCommonFreesAllPages) {
  KvInheritance from = Inheritance(Tokens({1, 2}), 1, 4);
  EXPECT_EQ(KeepCommonPrefix(Tokens({2, 2}), from), 0);
  EXPECT_EQ(cache_.pool().free_pages(), 8);
}

TEST_F(KeepCommonPrefixTest, APageIsKeptWholeWhenItsFirstRowIs) {
  std::vector<TokenId> tokens(65, TokenId{7});
  KvInheritance from = Inheritance(tokens, 65, 5);
  tokens.push_back(TokenId{8});
  EXPECT_EQ(KeepCommonPrefix(tokens, from), 65);
  EXPECT_EQ(from.pages.count(), 2);
}

TEST_F(KeepCommonPrefixTest, APageThatAnotherReadsIsKeptOnlyWhole) {
  const std::vector<TokenId> tokens(200, TokenId{7});
  KvInheritance from = Inheritance(tokens, 200, 4);
  SequencePages other = cache_.pool().NewSequence();
  other.Share(from.pages, 2);
  EXPECT_EQ(KeepCommonPrefix(std::vector<TokenId>(151, TokenId{7}), from), 150);
  EXPECT_EQ(KeepCommonPrefix(std::vector<TokenId>(129, TokenId{7}), from), 128);
  EXPECT_EQ(from.pages.count(), 2);
  EXPECT_EQ(KeepCommonPrefix(std::vector<TokenId>(128, TokenId{7}), from), 64);
  EXPECT_EQ(from.pages.count(), 1);
  EXPECT_EQ(KeepCommonPrefix(std::vector<TokenId>(64, TokenId{7}), from), 0);
  EXPECT_EQ(cache_.pool().free_pages(), 6);
}

class CheckWritableDeathTest : public KvCacheTest {};

TEST_F(CheckWritableDeathTest, ARowInAPageThatAnotherReadsIsNotWritten) {
  SequencePages own = cache_.pool().NewSequence();
  ASSERT_TRUE(own.Resize(3));
  SequencePages other = cache_.pool().NewSequence();
  other.Share(own, 1);
  ASSERT_TRUE(other.Resize(2));
  KvCache::CheckWritable(own, 64, 128);
  KvCache::CheckWritable(other, 64, 64);
  KvCache::CheckWritable(own, 0, 0);
  EXPECT_DEATH(KvCache::CheckWritable(own, 63, 1), "no row is written");
  EXPECT_DEATH(KvCache::CheckWritable(other, 60, 10), "no row is written");
  EXPECT_DEATH(KvCache::CheckWritable(other, 64, 65), "a page of this sequence");
}

}  // namespace
}  // namespace arborist::verifier
