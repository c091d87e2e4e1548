#include "drafter/ngram_proposer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "common/tree/token_tree.h"

namespace arborist::drafter {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int32_t kVocabulary = 50;

std::unique_ptr<DraftContext> ContextOf(const std::vector<TokenId>& tokens) {
  absl::StatusOr<std::unique_ptr<NgramProposer>> proposer =
      NgramProposer::Create({.vocabulary = kVocabulary});
  EXPECT_TRUE(proposer.ok()) << proposer.status();
  std::unique_ptr<DraftContext> context = *(*proposer)->NewContext();
  EXPECT_TRUE(context->AppendTokens(0, tokens).ok());
  return context;
}

std::vector<TokenId> Ids(const std::vector<int>& raw) {
  std::vector<TokenId> ids;
  for (const int id : raw) {
    ids.push_back(TokenId{id});
  }
  return ids;
}

std::vector<TokenId> RandomText(std::mt19937& random, int length, int vocabulary) {
  std::vector<TokenId> text(length);
  for (TokenId& token : text) {
    token = TokenId{static_cast<int32_t>(random() % vocabulary)};
  }
  // Repeats, as real text has them.
  for (int i = length / 2; i + 8 < length; i += 11) {
    std::copy_n(text.begin() + random() % (length / 2), 8, text.begin() + i);
  }
  return text;
}

TEST(NgramProposerTest, RepeatsWhatFollowedBefore) {
  const auto context = ContextOf(Ids({1, 2, 3, 4, 5, 6, 1, 2, 3}));
  const absl::StatusOr<TokenTree> tree = context->Propose({.shape = TreeShape::kChain, .nodes = 3});
  ASSERT_TRUE(tree.ok()) << tree.status();
  EXPECT_THAT(tree->token, ElementsAre(TokenId{3}, TokenId{4}, TokenId{5}, TokenId{6}));
  EXPECT_THAT(tree->parent, ElementsAre(-1, 0, 1, 2));
  EXPECT_FLOAT_EQ(tree->score[1], std::log(0.75f));
  EXPECT_FLOAT_EQ(tree->score[2], 2 * std::log(0.75f));
}

TEST(NgramProposerTest, SeveralContinuationsBranch) {
  const auto context = ContextOf(Ids({1, 2, 3, 4, 1, 2, 7, 8, 1, 2}));
  const absl::StatusOr<TokenTree> tree = context->Propose({.nodes = 4});
  ASSERT_TRUE(tree.ok()) << tree.status();
  std::vector<TokenId> children;
  for (int i = 1; i < tree->nodes(); ++i) {
    if (tree->parent[i] == 0) {
      children.push_back(tree->token[i]);
    }
  }
  EXPECT_THAT(children, ::testing::IsSupersetOf(Ids({3, 7})));
}

TEST(NgramProposerTest, TreesOfRandomTextsAreValidAndFillTheBudget) {
  for (uint32_t seed = 0; seed < 40; ++seed) {
    std::mt19937 random(seed);
    const std::vector<TokenId> text =
        RandomText(random, 20 + random() % 200, 2 + random() % (kVocabulary - 2));
    const auto context = ContextOf(text);
    for (const int nodes : {1, 3, 8, 16, 64, 255}) {
      const absl::StatusOr<TokenTree> tree =
          context->Propose({.nodes = nodes, .temperature = 1, .seed = seed});
      ASSERT_TRUE(tree.ok()) << tree.status();
      EXPECT_EQ(tree->nodes(), nodes + 1) << seed;
      const absl::Status valid = ValidateTokenTree(*tree, text.back(), {.vocab_size = kVocabulary});
      EXPECT_TRUE(valid.ok()) << valid << " seed " << seed << " nodes " << nodes;
      for (int i = 1; i < tree->nodes(); ++i) {
        EXPECT_LT(tree->score[i], 0);
      }
    }
  }
}

TEST(NgramProposerTest, ASmallerTreeIsAPrefixOfALargerOne) {
  std::mt19937 random(3);
  const std::vector<TokenId> text = RandomText(random, 150, 20);
  const auto context = ContextOf(text);
  TokenTree large = *context->Propose({.nodes = 64});
  const TokenTree small = *context->Propose({.nodes = 16});
  CutToPrefix(large, 17);
  EXPECT_EQ(large.token, small.token);
  EXPECT_EQ(large.parent, small.parent);
  EXPECT_EQ(large.score, small.score);
}

TEST(NgramProposerTest, AChainEndsAtTheDepthLimitAndATreeStaysWithinIt) {
  const auto context = ContextOf(Ids({1, 1, 1, 1, 1, 1}));
  EXPECT_EQ(context->Propose({.shape = TreeShape::kChain, .nodes = 255})->nodes(), kMaxTreeDepth + 1);
  const absl::StatusOr<TokenTree> tree = context->Propose({.nodes = 255});
  ASSERT_TRUE(tree.ok());
  EXPECT_TRUE(ValidateTokenTree(*tree, TokenId{1}, {.vocab_size = kVocabulary}).ok());
  EXPECT_EQ(tree->nodes(), kMaxTreeDepth + 1);  // one token, so one candidate a node
}

TEST(NgramProposerTest, NoBudgetIsTheRootAlone) {
  const auto context = ContextOf(Ids({1, 2, 1}));
  EXPECT_EQ(context->Propose({.nodes = 0})->nodes(), 1);
  EXPECT_EQ(context->Propose({.nodes = 0})->token[0], TokenId{1});
}

TEST(NgramProposerTest, PiecesAreAsGoodAsTheWhole) {
  std::mt19937 random(5);
  const std::vector<TokenId> text = RandomText(random, 120, 12);
  const auto whole = ContextOf(text), pieces = ContextOf({});
  for (size_t at = 0; at < text.size();) {
    const size_t count = std::min<size_t>(1 + random() % 9, text.size() - at);
    ASSERT_TRUE(pieces->AppendTokens(static_cast<int32_t>(at), std::span(text).subspan(at, count)).ok());
    at += count;
  }
  EXPECT_EQ(whole->Propose({.nodes = 32})->token, pieces->Propose({.nodes = 32})->token);
}

TEST(NgramProposerTest, TextIsTheOnlyInput) {
  const auto context = ContextOf(Ids({1, 2, 3, 1, 2}));
  const TokenTree cold = *context->Propose({.nodes = 8});
  const TokenTree hot = *context->Propose({.nodes = 8, .temperature = 1, .seed = 9, .sample_index = 2});
  EXPECT_EQ(cold.token, hot.token);
  EXPECT_TRUE(context->AppendFeatures(0, 1, {}).ok());
  EXPECT_EQ(context->Propose({.nodes = 8})->token, cold.token);
}

TEST(NgramProposerTest, BadCallsAreRefusedByName) {
  const auto context = ContextOf({});
  EXPECT_FALSE(context->Ready());
  EXPECT_EQ(context->Propose({.nodes = 4}).status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(context->AppendTokens(1, Ids({1})).code(), absl::StatusCode::kFailedPrecondition);
  ASSERT_TRUE(context->AppendTokens(0, Ids({1, 2})).ok());
  EXPECT_TRUE(context->Ready());
  const absl::Status gap = context->AppendTokens(3, Ids({1}));
  EXPECT_EQ(gap.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(gap.message(), "first_position=3, expected 2, the next position");
  EXPECT_EQ(context->AppendTokens(1, Ids({1})).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(context->AppendTokens(2, Ids({1, kVocabulary})).message()),
              HasSubstr("token_ids[1]=50"));
  EXPECT_THAT(std::string(context->AppendTokens(2, Ids({-1})).message()), HasSubstr("token_ids[0]=-1"));
  EXPECT_THAT(std::string(context->Propose({.nodes = 256}).status().message()), HasSubstr("nodes=256"));
  EXPECT_THAT(std::string(context->Propose({.nodes = -1}).status().message()), HasSubstr("nodes=-1"));
  EXPECT_THAT(std::string(context->Propose({.nodes = 1, .temperature = NAN}).status().message()),
              HasSubstr("temperature=nan"));
  EXPECT_EQ(context->Propose({.nodes = 4})->token[0], TokenId{2});  // nothing of a refused call stayed
}

TEST(NgramProposerTest, BadOptionsAreRefusedByName) {
  EXPECT_THAT(std::string(NgramProposer::Create({.vocabulary = 0}).status().message()),
              HasSubstr("vocabulary=0"));
  EXPECT_THAT(std::string(NgramProposer::Create({.max_history = 1}).status().message()),
              HasSubstr("max_history=1"));
  EXPECT_THAT(std::string(NgramProposer::Create({.depth_limit = 64}).status().message()),
              HasSubstr("depth_limit=64"));
}

}  // namespace
}  // namespace arborist::drafter
