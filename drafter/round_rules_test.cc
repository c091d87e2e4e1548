#include "drafter/round_rules.h"

#include <gtest/gtest.h>

namespace arborist::drafter {
namespace {

// 7 -> {1 -> {3 -> {5}}, 2 -> {4}}
TokenTree Tree() {
  return {.token = {TokenId{7}, TokenId{1}, TokenId{2}, TokenId{3}, TokenId{4}, TokenId{5}},
          .parent = {-1, 0, 0, 1, 2, 3},
          .score = {0, -1, -1, -2, -2, -3}};
}

int Accepted(int verified_nodes, std::vector<TokenId> tokens) {
  return AcceptedNodes(Tree(), verified_nodes, tokens);
}

TEST(RoundRulesTest, AcceptedAreTheNodesOfThePathAndNotTheTargetsOwnToken) {
  EXPECT_EQ(Accepted(5, {TokenId{1}, TokenId{3}, TokenId{5}, TokenId{9}}), 3);
  EXPECT_EQ(Accepted(5, {TokenId{2}, TokenId{4}}), 2) << "a stop in the middle of a run";
  EXPECT_EQ(Accepted(5, {TokenId{2}, TokenId{3}}), 1);
  EXPECT_EQ(Accepted(5, {TokenId{3}}), 0);
}

TEST(RoundRulesTest, ANodeThatWasCutIsNotAcceptedWhenTheTargetSaysTheSame) {
  EXPECT_EQ(Accepted(0, {TokenId{1}}), 0);
  EXPECT_EQ(Accepted(2, {TokenId{1}, TokenId{3}}), 1);
  EXPECT_EQ(Accepted(4, {TokenId{1}, TokenId{3}, TokenId{5}}), 2);
  CommittedTokens committed;
  committed.tokens = {TokenId{1}, TokenId{3}};
  committed.verified_nodes = 1;
  committed.cut_nodes = 4;
  const TokenTree tree = Tree();
  EXPECT_EQ(TokensOf(committed, &tree, {}).accepted, 1);
  EXPECT_EQ(TokensOf(committed, nullptr, {}).accepted, 0) << "a Decode";
}

}  // namespace
}  // namespace arborist::drafter
