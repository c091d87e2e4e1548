#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "common/device/device.h"
#include "common/tree/token_tree.h"
#include "drafter/testing/small_pair.h"
#include "kernels/testing/small_shapes.h"

namespace arborist::drafter {
namespace {

using kernels::testing::Small;
using kernels::testing::Thinned;
using ::testing::HasSubstr;
using testing::SmallPair;
using testing::Weights;

class DFlashProposerCudaTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto device = OpenCudaDevice({});
    if (!device.ok()) {
      GTEST_SKIP() << "skipped: " << device.status().message();
    }
    device_ = *std::move(device);
  }
  std::unique_ptr<DFlashProposer> Proposer(const SmallPair& pair, DFlashOptions options = {}) {
    options.max_together = std::min(options.max_together, Small(32, 2));  // a recording for each size
    return pair.NewProposer(std::move(options), kernels::CudaKernels(), *device_);
  }

  std::unique_ptr<Device> device_;
};

void ExpectSameTree(const TokenTree& got, const TokenTree& want) {
  EXPECT_EQ(got.token, want.token);
  EXPECT_EQ(got.parent, want.parent);
  EXPECT_EQ(got.score, want.score);
}

// Best-first lists of the same model: equal scores place by place, and where two of them are not close to
// each other the same node in both.
void ExpectTreesOfTheSameModel(const TokenTree& got, const TokenTree& want) {
  // fp32 against fp32 in other orders of summation: the golden data's tolerance, on scores of up to 30.
  constexpr float kTolerance = 2e-3f;
  ASSERT_EQ(got.nodes(), want.nodes());
  const auto path = [](const TokenTree& tree, int node) {
    std::vector<TokenId> tokens;
    for (; node > 0; node = tree.parent[node]) {
      tokens.push_back(tree.token[node]);
    }
    return tokens;
  };
  for (int i = 0; i < want.nodes(); ++i) {
    ASSERT_NEAR(got.score[i], want.score[i], kTolerance) << "node " << i;
    const bool alone = (i == 0 || want.score[i - 1] - want.score[i] > 2 * kTolerance) &&
                       i + 1 < want.nodes() && want.score[i] - want.score[i + 1] > 2 * kTolerance;
    if (alone) {
      ASSERT_EQ(path(got, i), path(want, i)) << "node " << i;
    }
  }
}

TEST_F(DFlashProposerCudaTest, TreesAreThoseOfTheCpu) {
  for (const std::string& golden : Thinned(testing::kGoldenDrafters, 2)) {
    const SmallPair pair(golden, Weights::kWidened);
    const auto cuda = Proposer(pair);
    for (const int length : Thinned({1, 2, 9, 40, 65, 120}, 2)) {
      const auto here = pair.Context(length), there = pair.Context(length, *cuda);
      for (const int nodes : Thinned({1, 8, 16, 64, 255}, 2)) {
        for (const float temperature : {0.0f, 0.7f}) {
          const ProposeArgs args{.nodes = nodes, .temperature = temperature, .seed = 5, .sample_index = 2};
          const absl::StatusOr<TokenTree> tree = there->Propose(args);
          ASSERT_TRUE(tree.ok()) << tree.status();
          ASSERT_NO_FATAL_FAILURE(ExpectTreesOfTheSameModel(*tree, *here->Propose(args)))
              << golden << " length " << length << " nodes " << nodes << " temperature " << temperature;
        }
      }
      const ProposeArgs chain{.shape = TreeShape::kChain, .nodes = 30};
      ASSERT_NO_FATAL_FAILURE(ExpectTreesOfTheSameModel(*there->Propose(chain), *here->Propose(chain)));
    }
  }
}

TEST_F(DFlashProposerCudaTest, TreesOfRandomContextsAreValidAndFillEveryBudget) {
  const SmallPair pair;
  const auto cuda = Proposer(pair);
  for (uint32_t seed = 0; seed < Small(8u, 2u); ++seed) {
    std::mt19937 random(seed);
    const int length = 1 + static_cast<int>(random() % 120);
    const auto context = pair.Context(length, *cuda);
    for (const int nodes : Thinned({1, 2, 7, 16, 64, 255}, 3)) {
      const float temperature = seed % 3 == 0 ? 0.0f : seed % 3 == 1 ? 1.0f : 1e-30f;
      const absl::StatusOr<TokenTree> tree =
          context->Propose({.nodes = nodes, .temperature = temperature, .seed = random()});
      ASSERT_TRUE(tree.ok()) << tree.status();
      EXPECT_EQ(tree->nodes(), nodes + 1);
      const absl::Status valid =
          ValidateTokenTree(*tree, pair.token(length - 1), {.vocab_size = pair.vocabulary(), .max_depth = 7});
      EXPECT_TRUE(valid.ok()) << valid << " seed " << seed;
    }
    EXPECT_EQ(context->Propose({.nodes = 0})->nodes(), 1);
  }
}

TEST_F(DFlashProposerCudaTest, RecordedRoundsFollowAGrowingContextToTheLastBit) {
  for (const std::string golden : {"full", "sliding"}) {
    const SmallPair pair(golden);
    const auto cuda = Proposer(pair);
    const auto context = pair.Context(20, *cuda);
    ASSERT_TRUE(context->Propose({.nodes = 16}).ok());
    int length = 20;
    for (const int accepted : Thinned({1, 5, 8, 2, 1, 1, 7, 20, 3}, 4)) {
      ASSERT_TRUE(context->AppendTokens(length, pair.Tokens(length, accepted)).ok());
      EXPECT_FALSE(context->Ready());
      ASSERT_TRUE(context->AppendFeatures(length - 1, accepted, pair.Features(length - 1, accepted)).ok());
      length += accepted;
      ASSERT_TRUE(context->Ready());
      const TokenTree tree = *context->Propose({.nodes = 32});
      ExpectSameTree(tree, *pair.Context(length, *cuda)->Propose({.nodes = 32}));
      ExpectSameTree(*context->Propose({.nodes = 32}), tree);
    }
  }
}

TEST_F(DFlashProposerCudaTest, FeaturesMayComeInAnyPiecesAndNewestFirst) {
  const SmallPair pair;
  const auto cuda = Proposer(pair);
  const TokenTree expected = *pair.Context(90, *cuda)->Propose({.nodes = 32});
  const auto context = *cuda->NewContext();
  ASSERT_TRUE(context->AppendTokens(0, pair.Tokens(0, 90)).ok());
  for (const auto& [first, rows] :
       {std::pair(70, 19), std::pair(0, 3), std::pair(3, 4), std::pair(67, 3), std::pair(50, 17),
        std::pair(7, 26), std::pair(33, 10), std::pair(43, 7)}) {
    EXPECT_FALSE(context->Ready());
    ASSERT_TRUE(context->AppendFeatures(first, rows, pair.Features(first, rows)).ok());
  }
  ExpectSameTree(*context->Propose({.nodes = 32}), expected);
}

TEST_F(DFlashProposerCudaTest, ASlidingWindowMovesItsRowsOnTheDevice) {
  const SmallPair pair;
  const auto cuda = Proposer(pair, {.context_window = 16});
  const auto grown = pair.Context(2, *cuda);
  for (int length = 2; length < Small(110, 32); length += 3) {
    ASSERT_TRUE(grown->AppendTokens(length, pair.Tokens(length, 3)).ok());
    ASSERT_TRUE(grown->AppendFeatures(length - 1, 3, pair.Features(length - 1, 3)).ok());
    ExpectSameTree(*grown->Propose({.nodes = 32}), *pair.Context(length + 3, *cuda)->Propose({.nodes = 32}));
  }
}

TEST_F(DFlashProposerCudaTest, ManyContextsDraftedTogetherAreWhatEachIsAlone) {
  const SmallPair pair;
  const auto cuda = Proposer(pair, {.max_sequences = 48, .max_together = 32});
  const int count = Small(40, 5), rounds = Small(20, 2);
  std::vector<std::unique_ptr<DraftContext>> contexts;
  std::vector<TokenTree> alone;
  const auto args = [](int i) {
    return ProposeArgs{.shape = i % 5 == 4 ? TreeShape::kChain : TreeShape::kTree,
                       .nodes = 1 + (i * 37) % 255,
                       .temperature = i % 3 == 0 ? 0.0f : 0.9f,
                       .seed = static_cast<uint64_t>(i)};
  };
  for (int i = 0; i < count; ++i) {
    contexts.push_back(pair.Context(1 + i * 3, *cuda));
    alone.push_back(*contexts.back()->Propose(args(i)));
  }
  std::vector<std::thread> threads;
  std::vector<int> equal(count, 0);
  for (int i = 0; i < count; ++i) {
    threads.emplace_back([&, i] {
      for (int round = 0; round < rounds; ++round) {
        const absl::StatusOr<TokenTree> tree = contexts[i]->Propose(args(i));
        equal[i] += tree.ok() && tree->token == alone[i].token && tree->parent == alone[i].parent &&
                            tree->score == alone[i].score
                        ? 1
                        : 0;
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_EQ(equal, std::vector<int>(count, rounds));
}

TEST_F(DFlashProposerCudaTest, MoreContextsThanMemoryWasTakenForAreRefusedUntilOneGoes) {
  const SmallPair pair;
  const auto cuda = Proposer(pair, {.max_sequences = 2});
  auto first = *cuda->NewContext();
  const auto second = *cuda->NewContext();
  const absl::Status refused = cuda->NewContext().status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(refused.message(), "sequences=3, expected at most max_sequences=2");
  first.reset();
  EXPECT_TRUE(cuda->NewContext().ok());
}

TEST_F(DFlashProposerCudaTest, ABrokenFeatureIsRefusedAndTheNextOneWorks) {
  const SmallPair pair;
  const auto cuda = Proposer(pair);
  const auto context = *cuda->NewContext();
  ASSERT_TRUE(context->AppendTokens(0, pair.Tokens(0, 10)).ok());
  std::vector<BFloat16> broken = pair.Features(0, 9);
  broken[32 * 4] = BFloat16{0x7fc0};
  EXPECT_THAT(std::string(context->AppendFeatures(0, 9, broken).message()),
              HasSubstr("features: position 4 holds nan"));
  ASSERT_TRUE(context->AppendFeatures(0, 9, pair.Features(0, 9)).ok());
  EXPECT_TRUE(context->Propose({.nodes = 4}).ok());
}

TEST_F(DFlashProposerCudaTest, AMemoryShareThatIsTooSmallIsRefusedByName) {
  const SmallPair pair;
  const auto small = OpenCudaDevice({.memory_limit = 1 << 20});
  ASSERT_TRUE(small.ok());
  DFlashOptions options;
  options.drafter_directory = pair.drafter_directory();
  options.target_directory = pair.target_directory();
  const absl::Status status = DFlashProposer::Create(options, kernels::CudaKernels(), **small).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()), HasSubstr("left of this process's share of the GPU's memory"));
}

TEST_F(DFlashProposerCudaTest, WhatItTookIsInTheMemoryTable) {
  const SmallPair pair;
  const auto cuda = Proposer(pair);
  const std::string table = MemoryTable(*device_);
  for (const char* what : {"drafter weights", "target's embedding", "target's head", "drafter activations",
                           "contexts of 64 sequences"}) {
    EXPECT_THAT(table, HasSubstr(what));
  }
}

}  // namespace
}  // namespace arborist::drafter
