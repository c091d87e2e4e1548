#include "drafter/dflash_proposer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <random>
#include <thread>

#include "common/tree/token_tree.h"
#include "drafter/testing/small_pair.h"
#include "kernels/exact_math/exact_math.h"

namespace arborist::drafter {
namespace {

using ::testing::HasSubstr;
using testing::SmallPair;

// log P of every token at each depth, in double, from the same model fed with the same features: what the
// proposer's tree is judged by. With temperature > 0 the verifier's noise is added first.
std::vector<std::vector<double>> LogProbs(const SmallPair& pair, int length, const ProposeArgs& args,
                                          float beta) {
  const View2<const float> logits = pair.Logits(length);
  std::vector<std::vector<double>> rows;
  for (int64_t d = 0; d < logits.rows; ++d) {
    std::vector<double> x(logits.columns);
    double sum = 0;
    for (int64_t v = 0; v < logits.columns; ++v) {
      x[v] = logits.row(d)[v];
      if (args.temperature > 0) {
        // The token at depth d + 1 stands at index root + d + 1 of prompt + output.
        const int32_t index = (length - 1) + static_cast<int32_t>(d) + 1;
        x[v] = x[v] / args.temperature +
               kernels::Gumbel(args.seed, args.sample_index, index, static_cast<int32_t>(v));
      }
      sum += std::exp(beta * x[v]);
    }
    for (double& value : x) {
      value = beta * value - std::log(sum);
    }
    rows.push_back(x);
  }
  return rows;
}

// fp32 scores of a few units: 1e-4 is far above their rounding and far below a wrong token's difference.
constexpr double kTolerance = 1e-4;

// Scores are sums along the paths, and no prefix outside the tree beats one inside.
void ExpectMostProbablePrefixes(const TokenTree& tree, const std::vector<std::vector<double>>& log_prob) {
  const std::vector<int32_t> depth = TreeDepths(tree.parent);
  std::vector<double> sum(tree.nodes(), 0);
  double worst = 0;
  for (int i = 1; i < tree.nodes(); ++i) {
    sum[i] = sum[tree.parent[i]] + log_prob[depth[i] - 1][Raw(tree.token[i])];
    EXPECT_NEAR(tree.score[i], sum[i], kTolerance) << "node " << i;
    worst = std::min(worst, sum[i]);
  }
  for (int parent = 0; parent < tree.nodes(); ++parent) {
    if (depth[parent] == static_cast<int>(log_prob.size())) {
      continue;
    }
    const std::vector<double>& row = log_prob[depth[parent]];
    for (size_t v = 0; v < row.size(); ++v) {
      bool inside = false;
      for (int i = 1; i < tree.nodes(); ++i) {
        inside = inside || (tree.parent[i] == parent && Raw(tree.token[i]) == static_cast<int>(v));
      }
      if (!inside) {
        EXPECT_LE(sum[parent] + row[v], worst + kTolerance) << "left out: token " << v << " under " << parent;
      }
    }
  }
}

TEST(DFlashProposerTest, TreeHoldsTheMostProbablePrefixes) {
  const SmallPair pair;
  const auto context = pair.Context(40);
  for (const int nodes : {1, 3, 8, 16, 31, 64}) {
    const ProposeArgs args{.nodes = nodes};
    const absl::StatusOr<TokenTree> tree = context->Propose(args);
    ASSERT_TRUE(tree.ok()) << tree.status();
    EXPECT_EQ(tree->nodes(), nodes + 1);
    ExpectMostProbablePrefixes(*tree, LogProbs(pair, 40, args, 1));
  }
}

TEST(DFlashProposerTest, CoupledNoiseIsTheVerifiersAtTheSameIndex) {
  const SmallPair pair;
  const auto context = pair.Context(33);
  const ProposeArgs args{.nodes = 16, .temperature = 0.7f, .seed = 0x123456789abcdef, .sample_index = 3};
  const absl::StatusOr<TokenTree> tree = context->Propose(args);
  ASSERT_TRUE(tree.ok()) << tree.status();
  ExpectMostProbablePrefixes(*tree, LogProbs(pair, 33, args, 1));
  ProposeArgs other = args;
  other.sample_index = 4;
  EXPECT_NE(context->Propose(other)->token, tree->token);
  other = args;
  other.seed = 1;
  EXPECT_NE(context->Propose(other)->token, tree->token);
}

TEST(DFlashProposerTest, BetaSharpensScores) {
  const SmallPair pair;
  const auto proposer = pair.NewProposer({.beta = 0.5f});
  const auto context = pair.Context(40, *proposer);
  const ProposeArgs args{.nodes = 16};
  ExpectMostProbablePrefixes(*context->Propose(args), LogProbs(pair, 40, args, 0.5f));
}

TEST(DFlashProposerTest, AChainIsTheMostProbableTokenOfEachDepth) {
  const SmallPair pair;
  const auto context = pair.Context(40);
  for (const int nodes : {1, 4, 7, 30}) {
    const ProposeArgs args{.shape = TreeShape::kChain, .nodes = nodes};
    const absl::StatusOr<TokenTree> chain = context->Propose(args);
    ASSERT_TRUE(chain.ok()) << chain.status();
    const auto log_prob = LogProbs(pair, 40, args, 1);
    ASSERT_EQ(chain->nodes(), std::min(nodes, 7) + 1);
    for (int i = 1; i < chain->nodes(); ++i) {
      EXPECT_EQ(chain->parent[i], i - 1);
      const auto best =
          std::max_element(log_prob[i - 1].begin(), log_prob[i - 1].end()) - log_prob[i - 1].begin();
      EXPECT_EQ(Raw(chain->token[i]), best);
    }
  }
}

TEST(DFlashProposerTest, TreesOfRandomContextsAreValidAndFillEveryBudget) {
  const SmallPair pair;
  for (uint32_t seed = 0; seed < 12; ++seed) {
    std::mt19937 random(seed);
    const int length = 1 + static_cast<int>(random() % 120);
    const auto context = pair.Context(length);
    for (const int nodes : {1, 2, 7, 16, 64, 255}) {
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

TEST(DFlashProposerTest, FeaturesMayComeInAnyPiecesAndNewestFirst) {
  const SmallPair pair;
  const TokenTree expected = *pair.Context(90)->Propose({.nodes = 32});
  const auto context = *pair.proposer().NewContext();
  ASSERT_TRUE(context->AppendTokens(0, pair.Tokens(0, 90)).ok());
  EXPECT_FALSE(context->Ready());
  for (const auto& [first, rows] :
       {std::pair(70, 19), std::pair(0, 33), std::pair(50, 20), std::pair(33, 17)}) {
    EXPECT_FALSE(context->Ready());
    EXPECT_EQ(context->Propose({.nodes = 4}).status().code(), absl::StatusCode::kFailedPrecondition);
    ASSERT_TRUE(context->AppendFeatures(first, rows, pair.Features(first, rows)).ok());
  }
  EXPECT_TRUE(context->Ready());
  const TokenTree tree = *context->Propose({.nodes = 32});
  EXPECT_EQ(tree.token, expected.token);
  EXPECT_EQ(tree.score, expected.score);
}

TEST(DFlashProposerTest, RoundsGrowTheContextLikeAFreshOne) {
  const SmallPair pair;
  const auto context = pair.Context(20);
  ASSERT_TRUE(context->Propose({.nodes = 16}).ok());
  int length = 20;
  for (const int accepted : {1, 5, 8, 2}) {
    ASSERT_TRUE(context->AppendTokens(length, pair.Tokens(length, accepted)).ok());
    EXPECT_FALSE(context->Ready());
    ASSERT_TRUE(context->AppendFeatures(length - 1, accepted, pair.Features(length - 1, accepted)).ok());
    length += accepted;
    ASSERT_TRUE(context->Ready());
    const TokenTree tree = *context->Propose({.nodes = 16}),
                    fresh = *pair.Context(length)->Propose({.nodes = 16});
    EXPECT_EQ(tree.token, fresh.token);
    EXPECT_EQ(tree.score, fresh.score);
  }
}

TEST(DFlashProposerTest, OnlyTheWindowIsNeededAndUsed) {
  const SmallPair pair;
  const auto proposer = pair.NewProposer({.context_window = 16});
  EXPECT_EQ(proposer->feature_window(), 16);
  const auto whole = pair.Context(100, *proposer);
  const auto part = *proposer->NewContext();
  ASSERT_TRUE(part->AppendTokens(0, pair.Tokens(0, 100)).ok());
  ASSERT_TRUE(part->AppendFeatures(84, 15, pair.Features(84, 15)).ok());
  EXPECT_FALSE(part->Ready());
  ASSERT_TRUE(part->AppendFeatures(83, 1, pair.Features(83, 1)).ok());
  EXPECT_TRUE(part->Ready());
  EXPECT_EQ(part->Propose({.nodes = 32})->token, whole->Propose({.nodes = 32})->token);
  // And it is a window: more context gives other scores.
  EXPECT_NE(pair.Context(100)->Propose({.nodes = 32})->score, whole->Propose({.nodes = 32})->score);
}

TEST(DFlashProposerTest, SlidingDraftersWantTheirWindowOnly) {
  EXPECT_EQ(SmallPair("sliding_bidirectional").proposer().feature_window(), 15);
  EXPECT_EQ(SmallPair("sliding").proposer().feature_window(), 4096);
  const SmallPair pair("sliding_bidirectional");
  const auto context = *pair.proposer().NewContext();
  ASSERT_TRUE(context->AppendTokens(0, pair.Tokens(0, 100)).ok());
  ASSERT_TRUE(context->AppendFeatures(84, 15, pair.Features(84, 15)).ok());
  ASSERT_TRUE(context->Ready());
  EXPECT_EQ(context->Propose({.nodes = 32})->score, pair.Context(100)->Propose({.nodes = 32})->score);
}

TEST(DFlashProposerTest, ContextsShareTheModelWithoutMixing) {
  const SmallPair pair;
  const auto a = pair.Context(30), b = pair.Context(71);
  const TokenTree tree_a = *a->Propose({.nodes = 16}), tree_b = *b->Propose({.nodes = 16});
  std::vector<std::thread> threads;
  std::vector<int> equal(4, 0);
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      const auto own = pair.Context(t % 2 == 0 ? 30 : 71);
      for (int i = 0; i < 5; ++i) {
        equal[t] += own->Propose({.nodes = 16})->token == (t % 2 == 0 ? tree_a : tree_b).token ? 1 : 0;
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_EQ(equal, std::vector<int>(4, 5));
}

TEST(DFlashProposerTest, AFirstTokenAloneIsEnough) {
  const SmallPair pair;
  const auto context = *pair.proposer().NewContext();
  EXPECT_FALSE(context->Ready());
  ASSERT_TRUE(context->AppendTokens(0, pair.Tokens(0, 1)).ok());
  EXPECT_TRUE(context->Ready());
  EXPECT_EQ(context->Propose({.nodes = 16})->nodes(), 17);
}

TEST(DFlashProposerTest, BeyondItsPositionsItIsNotReadyAndSaysWhy) {
  const SmallPair pair;
  const auto proposer = pair.NewProposer({.max_positions = 50});
  const auto at_end = pair.Context(50, *proposer);
  EXPECT_TRUE(at_end->Ready());
  EXPECT_TRUE(at_end->Propose({.nodes = 16}).ok());
  ASSERT_TRUE(at_end->AppendTokens(50, pair.Tokens(50, 3)).ok());
  EXPECT_TRUE(at_end->AppendFeatures(49, 3, pair.Features(49, 3)).ok());
  EXPECT_FALSE(at_end->Ready());
  const absl::Status status = at_end->Propose({.nodes = 16}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(status.message(), "root position=52, expected below 50, the drafter's max_position_embeddings");
}

TEST(DFlashProposerTest, BadCallsAreRefusedByName) {
  const SmallPair pair;
  const auto context = *pair.proposer().NewContext();
  const auto message = [](const absl::Status& status) { return std::string(status.message()); };
  EXPECT_EQ(context->Propose({.nodes = 1}).status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(context->AppendTokens(5, pair.Tokens(5, 1)).code(), absl::StatusCode::kFailedPrecondition);
  const TokenId outside[] = {TokenId{pair.vocabulary()}};
  EXPECT_THAT(message(context->AppendTokens(0, outside)), HasSubstr("token_ids[0]=96"));
  ASSERT_TRUE(context->AppendTokens(0, pair.Tokens(0, 10)).ok());
  // The root at position 9 has no features yet.
  const absl::Status early = context->AppendFeatures(0, 10, pair.Features(0, 10));
  EXPECT_EQ(early.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(message(early), HasSubstr("features of positions 0 to 9, expected committed positions before"));
  EXPECT_EQ(context->AppendFeatures(-1, 2, pair.Features(0, 2)).code(),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(message(context->AppendFeatures(0, 3, pair.Features(0, 2))),
              HasSubstr("features: 64 values, expected 3"));
  std::vector<BFloat16> broken = pair.Features(0, 9);
  broken[32 * 4] = BFloat16{0x7fc0};
  EXPECT_THAT(message(context->AppendFeatures(0, 9, broken)), HasSubstr("features: position 4 holds nan"));
  EXPECT_FALSE(context->Ready());
  ASSERT_TRUE(context->AppendFeatures(0, 9, pair.Features(0, 9)).ok());
  EXPECT_THAT(message(context->Propose({.nodes = 256}).status()), HasSubstr("nodes=256"));
  EXPECT_THAT(message(context->Propose({.nodes = 4, .temperature = -1}).status()),
              HasSubstr("temperature=-1"));
  EXPECT_THAT(message(context->Propose({.nodes = 4, .temperature = INFINITY}).status()),
              HasSubstr("temperature=inf"));
  EXPECT_TRUE(context->Propose({.nodes = 4}).ok());
}

TEST(DFlashProposerTest, BadOptionsAndDirectoriesAreRefusedByName) {
  const SmallPair pair;
  const auto message = [&](const DFlashOptions& changes, const std::string& drafter,
                           const std::string& target) {
    DFlashOptions options = changes;
    options.drafter_directory = drafter;
    options.target_directory = target;
    return std::string(
        DFlashProposer::Create(options, kernels::CpuKernels(), pair.threads()).status().message());
  };
  const std::string drafter = pair.drafter_directory(), target = pair.target_directory();
  EXPECT_THAT(message({.beta = 0}, drafter, target), HasSubstr("beta=0"));
  EXPECT_THAT(message({.beta = NAN}, drafter, target), HasSubstr("beta=nan"));
  EXPECT_THAT(message({.context_window = -1}, drafter, target), HasSubstr("context_window=-1"));
  EXPECT_THAT(message({.max_positions = -1}, drafter, target), HasSubstr("max_positions=-1"));
  EXPECT_THAT(message({}, "/nowhere", target), HasSubstr("/nowhere"));
  EXPECT_THAT(message({}, drafter, "/nowhere"), HasSubstr("/nowhere"));
  // The two directories the wrong way round.
  EXPECT_THAT(message({}, target, drafter), HasSubstr("dflash_config=missing"));
}

TEST(DFlashProposerTest, ProjectionHashIsTheCheckpoints) {
  const SmallPair full("full"), yarn("yarn");
  EXPECT_EQ(full.proposer().projection_hash().size(), 64u);
  EXPECT_NE(full.proposer().projection_hash(), yarn.proposer().projection_hash());
  EXPECT_TRUE(full.proposer().needs_features());
  EXPECT_EQ(full.proposer().max_depth(), 7);
}

}  // namespace
}  // namespace arborist::drafter
