#include "kernels/tree_build/tree_build.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

#include "common/tree/token_tree.h"

namespace arborist::kernels {
namespace {

using Build = absl::Status (*)(const TreeBuildArgs&, StreamView);

constexpr int kVocabulary = 1000;
constexpr auto kRoot = TokenId{17};

struct Candidates {
  int depths;
  int k;
  std::vector<float> log_prob;
  std::vector<TokenId> token;

  Candidates(int depths, int k, std::vector<float> values)
      : depths(depths), k(k), log_prob(std::move(values)), token(log_prob.size()) {
    std::mt19937 random(std::random_device{}());
    std::vector<int32_t> ids(kVocabulary);
    std::iota(ids.begin(), ids.end(), 0);
    for (int depth = 0; depth < depths; ++depth) {
      std::shuffle(ids.begin(), ids.end(), random);
      for (int rank = 0; rank < k; ++rank) {
        token[depth * k + rank] = TokenId{ids[rank]};
      }
    }
  }
};

// Multiples of `step` (a power of two), so every sum is exact; a coarse step makes ties.
Candidates RandomCandidates(int depths, int k, float step) {
  std::mt19937 random(std::random_device{}());
  std::exponential_distribution<float> exponential(0.4f);
  std::vector<float> values;
  for (int depth = 0; depth < depths; ++depth) {
    std::vector<float> row(k);
    for (float& value : row) {
      value = -std::min(64.0f, std::round(exponential(random) / step) * step);
    }
    std::sort(row.begin(), row.end(), std::greater<>());
    values.insert(values.end(), row.begin(), row.end());
  }
  return {depths, k, std::move(values)};
}

struct Built {
  absl::Status status;
  TokenTree tree;
};

Built RunBuild(Build build, const Candidates& c, int budget) {
  TokenTree tree{.token = std::vector<TokenId>(budget + 1, TokenId{-9}),
                 .parent = std::vector<int32_t>(budget + 1, -9),
                 .score = std::vector<float>(budget + 1, std::numeric_limits<float>::quiet_NaN())};
  int32_t nodes = -1;
  const TreeBuildParams params = {.root = kRoot, .depths = c.depths, .k = c.k, .budget = budget};
  absl::Status status = build({.params = {&params, 1},
                               .token = {c.token.data(), c.depths, c.k, c.k},
                               .log_prob = {c.log_prob.data(), c.depths, c.k, c.k},
                               .out_token = {tree.token.data(), 1, budget + 1, budget + 1},
                               .out_parent = {tree.parent.data(), 1, budget + 1, budget + 1},
                               .out_score = {tree.score.data(), 1, budget + 1, budget + 1},
                               .out_nodes = {&nodes, 1}},
                              {});
  if (status.ok()) {
    EXPECT_GE(nodes, 1);
    EXPECT_LE(nodes, budget + 1);
    CutToPrefix(tree, nodes);
  }
  return {status, tree};
}

void ExpectEqualTrees(const TokenTree& got, const TokenTree& expected) {
  EXPECT_EQ(got.token, expected.token);
  EXPECT_EQ(got.parent, expected.parent);
  EXPECT_EQ(got.score, expected.score);
}

// What the wire demands of every prefix of the list.
void ExpectEveryPrefixIsAValidTree(const TokenTree& tree) {
  for (int nodes = 1; nodes <= tree.nodes(); ++nodes) {
    TokenTree prefix = tree;
    CutToPrefix(prefix, nodes);
    const absl::Status status = ValidateTokenTree(prefix, kRoot, {.vocab_size = kVocabulary});
    EXPECT_TRUE(status.ok()) << status;
  }
}

TEST(TreeBuildTest, EqualsTheEnumerationOfAllPrefixes) {
  for (int depths = 1; depths <= 5; ++depths) {
    for (int k : {1, 2, 3, 4}) {
      for (int budget : {0, 1, 2, 3, 7, 16, 64, 255}) {
        for (float step : {1.0f / (1 << 18), 0.25f, 2.0f}) {
          const Candidates c = RandomCandidates(depths, k, step);
          const Built expected = RunBuild(reference::TreeBuild, c, budget);
          const Built got = RunBuild(cpu::TreeBuild, c, budget);
          ASSERT_TRUE(expected.status.ok() && got.status.ok()) << got.status;
          ExpectEqualTrees(got.tree, expected.tree);
        }
      }
    }
  }
}

// k + k^2 + ... + k^depths prefixes exist.
int NodesWithBudget(int depths, int k, int budget) {
  int prefixes = 0;
  for (int depth = 0, width = k; depth < depths && prefixes < budget;
       ++depth, width = std::min(width * k, 1000)) {
    prefixes += width;
  }
  return std::min(prefixes, budget) + 1;
}

TEST(TreeBuildTest, EveryPrefixOfTheListIsAValidTree) {
  for (int depths : {1, 7, 15, 63}) {
    for (int k : {1, 2, 16, 64}) {
      for (float step : {1.0f / (1 << 18), 1.0f}) {
        const Built built = RunBuild(cpu::TreeBuild, RandomCandidates(depths, k, step), 255);
        ASSERT_TRUE(built.status.ok()) << built.status;
        ExpectEveryPrefixIsAValidTree(built.tree);
        EXPECT_EQ(built.tree.nodes(), NodesWithBudget(depths, k, 255));
      }
    }
  }
}

TEST(TreeBuildTest, ASmallerBudgetGivesAPrefixOfTheLargerTree) {
  const Candidates c = RandomCandidates(15, 32, 0.5f);
  const TokenTree full = RunBuild(cpu::TreeBuild, c, 255).tree;
  for (int budget = 0; budget < 255; ++budget) {
    TokenTree prefix = full;
    CutToPrefix(prefix, budget + 1);
    ExpectEqualTrees(RunBuild(cpu::TreeBuild, c, budget).tree, prefix);
  }
}

TEST(TreeBuildTest, OneCandidateADepthIsAChain) {
  const Built built = RunBuild(cpu::TreeBuild, RandomCandidates(7, 1, 0.125f), 16);
  EXPECT_THAT(built.tree.parent, testing::ElementsAre(-1, 0, 1, 2, 3, 4, 5, 6));
}

TEST(TreeBuildTest, OneDepthIsAStarOfTheBestCandidates) {
  const Candidates c = RandomCandidates(1, 8, 0.125f);
  const Built built = RunBuild(cpu::TreeBuild, c, 5);
  EXPECT_THAT(built.tree.parent, testing::ElementsAre(-1, 0, 0, 0, 0, 0));
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(built.tree.token[i + 1], c.token[i]);
    EXPECT_EQ(built.tree.score[i + 1], c.log_prob[i]);
  }
}

TEST(TreeBuildTest, NoCandidatesOrNoBudgetLeavesTheRootAlone) {
  for (const Built& built : {RunBuild(cpu::TreeBuild, Candidates(0, 0, {}), 16),
                             RunBuild(cpu::TreeBuild, RandomCandidates(4, 4, 1), 0)}) {
    ASSERT_TRUE(built.status.ok()) << built.status;
    ExpectEqualTrees(built.tree, TokenTree::RootOnly(kRoot));
  }
}

TEST(TreeBuildTest, EqualScoresAreOrderedByThePathOfRanksAPrefixFirst) {
  // All zero: (0) (0,0) (0,0,0) (0,0,1) (0,1) (0,1,0) (0,1,1) (1) ...
  const Built built = RunBuild(cpu::TreeBuild, Candidates(3, 2, std::vector<float>(6, 0.0f)), 8);
  EXPECT_THAT(built.tree.parent, testing::ElementsAre(-1, 0, 1, 2, 2, 1, 5, 5, 0));
}

TEST(TreeBuildTest, RoundingNeverMakesAScoreRiseOrLeaveTheFiniteRange) {
  // Magnitudes far apart: (score - own) + next rounds, and sums pass the largest float.
  std::mt19937 random(std::random_device{}());
  std::uniform_real_distribution<float> exponent(-40, 38);
  const float lowest = std::numeric_limits<float>::lowest();
  for (int round = 0; round < 300; ++round) {
    std::vector<float> values;
    for (int depth = 0; depth < 12; ++depth) {
      std::vector<float> row(6);
      for (float& value : row) {
        value = round % 3 == 0 ? lowest : -std::pow(10.0f, exponent(random));
      }
      row[1] = row[0];
      std::sort(row.begin(), row.end(), std::greater<>());
      values.insert(values.end(), row.begin(), row.end());
    }
    const Built built = RunBuild(cpu::TreeBuild, Candidates(12, 6, values), 255);
    ASSERT_TRUE(built.status.ok()) << built.status;
    const absl::Status status = ValidateTokenTree(built.tree, kRoot, {.vocab_size = kVocabulary});
    EXPECT_TRUE(status.ok()) << status;
  }
}

std::string Refusal(int depth, int rank, float value) {
  Candidates c(4, 4, std::vector<float>(16, -1.0f));
  c.log_prob[depth * 4 + rank] = value;
  std::string message;
  for (Build build : {reference::TreeBuild, cpu::TreeBuild}) {
    const absl::Status status = RunBuild(build, c, 8).status;
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    message = std::string(status.message());
  }
  return message;
}

TEST(TreeBuildTest, NanInfinitePositiveAndIncreasingLogProbabilitiesAreRefusedWithDepthRankAndValue) {
  const float infinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(Refusal(0, 0, std::nanf("")), "log_prob[0][0]=nan, expected a finite value <= 0");
  EXPECT_EQ(Refusal(3, 3, -infinity), "log_prob[3][3]=-inf, expected a finite value <= 0");
  EXPECT_EQ(Refusal(1, 2, infinity), "log_prob[1][2]=inf, expected a finite value <= 0");
  EXPECT_EQ(Refusal(2, 0, 0.5f), "log_prob[2][0]=0.5, expected a finite value <= 0");
  EXPECT_EQ(Refusal(2, 1, -0.5f), "log_prob[2][1]=-0.5, expected at most the rank before, -1");
}

TEST(TreeBuildTest, ARepeatedCandidateIsRefused) {
  Candidates c = RandomCandidates(3, 4, 1);
  c.token[4 + 3] = TokenId{5};
  c.token[4 + 1] = TokenId{5};
  c.token[4 + 2] = TokenId{6};
  c.token[4 + 0] = TokenId{7};
  EXPECT_EQ(std::string(RunBuild(cpu::TreeBuild, c, 8).status.message()),
            "token[1][3]=5, expected a token that no earlier rank of this row has");
}

TEST(TreeBuildTest, LimitsAndSizesAreRefusedByName) {
  const Candidates c = RandomCandidates(2, 2, 1);
  TokenTree tree{std::vector<TokenId>(9), std::vector<int32_t>(9), std::vector<float>(9)};
  int32_t nodes = 0;
  const auto message = [&](auto change) {
    TreeBuildParams params = {.root = kRoot, .depths = 2, .k = 2, .budget = 8};
    TreeBuildArgs args = {.params = {&params, 1},
                          .token = {c.token.data(), 2, 2, 2},
                          .log_prob = {c.log_prob.data(), 2, 2, 2},
                          .out_token = {tree.token.data(), 1, 9, 9},
                          .out_parent = {tree.parent.data(), 1, 9, 9},
                          .out_score = {tree.score.data(), 1, 9, 9},
                          .out_nodes = {&nodes, 1}};
    change(args, params);
    return std::string(ValidateTreeBuild(args).message());
  };
  using Args = TreeBuildArgs;
  using Params = TreeBuildParams;
  EXPECT_EQ(message([](Args&, Params&) {}), "");
  EXPECT_EQ(message([](Args&, Params& p) { p.budget = -1; }), "params[0].budget=-1, expected 0..8");
  EXPECT_EQ(message([](Args&, Params& p) { p.budget = 9; }), "params[0].budget=9, expected 0..8");
  EXPECT_EQ(message([](Args&, Params& p) { p.depths = 3; }), "params[0].depths=3, expected 0..2");
  EXPECT_EQ(message([](Args&, Params& p) { p.k = 3; }), "params[0].k=3, expected 1..2");
  EXPECT_EQ(message([](Args&, Params& p) { p.k = 0; }), "params[0].k=0, expected 1..2");
  EXPECT_EQ(message([](Args& a, Params&) { a.log_prob.rows = 1; }), "log_prob.rows=1, expected token.rows=2");
  EXPECT_EQ(message([](Args& a, Params&) { a.log_prob.columns = 1; }),
            "log_prob.columns=1, expected token.columns=2");
  EXPECT_EQ(message([](Args& a, Params&) { a.out_score.columns = 8; }),
            "out_parent or out_score=[1, 9] and [1, 8], expected the shape of out_token");
  EXPECT_EQ(message([](Args& a, Params&) { a.out_nodes.size = 0; }),
            "out_nodes.size=0, expected params.size=1");
  EXPECT_EQ(message([](Args& a, Params&) { a.error.size = 2; }), "error.size=2, expected 0 or params.size=1");
}

TEST(TreeBuildTest, EachStreamOfABatchGetsTheTreeThatItGetsAlone) {
  constexpr int kDepths = 5;
  constexpr int kMaxK = 6;
  constexpr int kWidth = 20;
  const Candidates c = RandomCandidates(4 * kDepths, kMaxK, 0.25f);
  const std::vector<TreeBuildParams> params = {{.root = TokenId{1}, .depths = 5, .k = 6, .budget = 19},
                                               {.root = TokenId{2}, .depths = 3, .k = 2, .budget = 7},
                                               {.root = TokenId{3}},
                                               {.root = TokenId{4}, .depths = 1, .k = 6, .budget = 19}};
  std::vector<TokenId> token(4 * kWidth);
  std::vector<int32_t> parent(4 * kWidth);
  std::vector<float> score(4 * kWidth);
  std::vector<int32_t> nodes(4);
  std::vector<int32_t> error(4, 7);
  for (Build build : {reference::TreeBuild, cpu::TreeBuild}) {
    ASSERT_TRUE(build({.params = {params.data(), 4},
                       .token = {c.token.data(), 4 * kDepths, kMaxK, kMaxK},
                       .log_prob = {c.log_prob.data(), 4 * kDepths, kMaxK, kMaxK},
                       .out_token = {token.data(), 4, kWidth, kWidth},
                       .out_parent = {parent.data(), 4, kWidth, kWidth},
                       .out_score = {score.data(), 4, kWidth, kWidth},
                       .out_nodes = {nodes.data(), 4},
                       .error = {error.data(), 4}},
                      {})
                    .ok());
    EXPECT_THAT(error, testing::Each(0));
    for (int stream = 0; stream < 4; ++stream) {
      const TreeBuildParams& own = params[stream];
      Candidates alone(own.depths, own.k, std::vector<float>(own.depths * own.k));
      for (int i = 0; i < own.depths * own.k; ++i) {
        const int from = (stream * kDepths + i / own.k) * kMaxK + i % own.k;
        alone.log_prob[i] = c.log_prob[from];
        alone.token[i] = c.token[from];
      }
      TokenTree expected = RunBuild(build, alone, own.budget).tree;
      expected.token[0] = own.root;
      ASSERT_EQ(nodes[stream], expected.nodes());
      for (int i = 0; i < expected.nodes(); ++i) {
        EXPECT_EQ(token[stream * kWidth + i], expected.token[i]);
        EXPECT_EQ(parent[stream * kWidth + i], expected.parent[i]);
        EXPECT_EQ(score[stream * kWidth + i], expected.score[i]);
      }
    }
  }
}

static_assert(kTreeBuildMaxBudget == kMaxTreeBudget && kTreeBuildMaxDepth == kMaxTreeDepth,
              "the builder never makes a tree that the wire refuses");

}  // namespace
}  // namespace arborist::kernels
