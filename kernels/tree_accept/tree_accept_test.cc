#include "kernels/tree_accept/tree_accept.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace arborist::kernels {
namespace {

using testing::ElementsAre;
using Accept = absl::Status (*)(const TreeAcceptArgs&, StreamView);

constexpr int32_t kPoison = 777;

struct Trees {
  std::vector<int32_t> tree_begin = {0};
  std::vector<TokenId> token;
  std::vector<int32_t> parent;
  std::vector<TokenId> chosen;
  std::vector<int32_t> nodes = {};  // empty: every row is a node

  void Add(std::vector<int32_t> tokens, std::vector<int32_t> parents, std::vector<int32_t> choices) {
    for (size_t i = 0; i < tokens.size(); ++i) {
      token.push_back(TokenId{tokens[i]});
      parent.push_back(parents[i]);
      chosen.push_back(TokenId{choices[i]});
    }
    tree_begin.push_back(static_cast<int32_t>(token.size()));
  }
};

struct Result {
  std::vector<std::vector<int32_t>> paths;
  std::vector<int32_t> bonus;
  std::vector<int32_t> error;
  bool operator==(const Result&) const = default;
};

Result RunAccept(Accept accept, const Trees& t) {
  const auto rows = static_cast<int64_t>(t.token.size());
  const auto trees = static_cast<int64_t>(t.tree_begin.size()) - 1;
  std::vector<int32_t> path(rows, kPoison);
  std::vector<int32_t> length(trees, kPoison);
  std::vector<TokenId> bonus(trees, TokenId{kPoison});
  std::vector<int32_t> error(trees, kPoison);
  ThreadPool pool(1);
  const absl::Status status = accept({.tree_begin = {t.tree_begin.data(), trees + 1},
                                      .token = {t.token.data(), rows},
                                      .parent = {t.parent.data(), rows},
                                      .chosen = {t.chosen.data(), rows},
                                      .path = {path.data(), rows},
                                      .path_length = {length.data(), trees},
                                      .bonus = {bonus.data(), trees},
                                      .error = {error.data(), trees},
                                      .nodes = {t.nodes.data(), static_cast<int64_t>(t.nodes.size())}},
                                     {.threads = &pool});
  EXPECT_TRUE(status.ok()) << status;
  Result result = {.paths = {}, .bonus = {}, .error = error};
  for (int64_t tree = 0; tree < trees; ++tree) {
    EXPECT_GE(length[tree], 0);
    EXPECT_LE(length[tree], rows);
    const auto begin = path.begin() + (length[tree] > 0 ? t.tree_begin[tree] : 0);
    result.paths.emplace_back(begin, begin + length[tree]);
    result.bonus.push_back(Raw(bonus[tree]));
  }
  return result;
}

class TreeAcceptTest : public testing::TestWithParam<Accept> {};

TEST_P(TreeAcceptTest, RootOnlyTreeYieldsOneToken) {
  Trees t;
  t.Add({5}, {-1}, {9});
  EXPECT_EQ(RunAccept(GetParam(), t), (Result{.paths = {{0}}, .bonus = {9}, .error = {0}}));
}

TEST_P(TreeAcceptTest, TheWalkFollowsChosenTokensOffTheFirstBranch) {
  Trees t;
  //            0 -> 1(10) -> 3(30);  0 -> 2(11) -> 4(31) -> 5(40)
  t.Add({5, 10, 11, 30, 31, 40}, {-1, 0, 0, 1, 2, 4}, {11, 30, 31, 1, 41, 2});
  EXPECT_EQ(RunAccept(GetParam(), t), (Result{.paths = {{0, 2, 4}}, .bonus = {41}, .error = {0}}));
}

TEST_P(TreeAcceptTest, AFullyAcceptedChainEndsWithTheChoiceAfterItsLeaf) {
  Trees t;
  t.Add({1, 2, 3, 4}, {-1, 0, 1, 2}, {2, 3, 4, 50});
  EXPECT_EQ(RunAccept(GetParam(), t), (Result{.paths = {{0, 1, 2, 3}}, .bonus = {50}, .error = {0}}));
}

TEST_P(TreeAcceptTest, ATokenUnderAnotherParentIsNotAccepted) {
  Trees t;
  t.Add({1, 2, 3, 4}, {-1, 0, 0, 2}, {2, 4, 4, 4});  // 4 hangs under 3, the walk is at 2
  EXPECT_EQ(RunAccept(GetParam(), t), (Result{.paths = {{0, 1}}, .bonus = {4}, .error = {0}}));
}

TEST_P(TreeAcceptTest, PointersOutsideTheirRangeEndInTheErrorFlagAndSpareTheNeighbours) {
  // Cyclic (1 <-> 2), self, forward, negative, huge; as a child of the walk or not.
  for (const auto& parents : std::vector<std::vector<int32_t>>{{-1, 2, 1, 0},
                                                               {-1, 1, 0, 0},
                                                               {-1, 0, 3, 0},
                                                               {-1, 0, 1, -1},
                                                               {-1, 0, 1, -2147483647},
                                                               {-1, 0, 1, 2147483647},
                                                               {0, 0, 1, 2},
                                                               {3, 0, 1, 2}}) {
    Trees t;
    t.Add({1, 2}, {-1, 0}, {2, 8});
    t.Add({1, 2, 3, 4}, parents, {2, 3, 4, 5});
    t.Add({1, 2}, {-1, 0}, {2, 9});
    EXPECT_EQ(RunAccept(GetParam(), t),
              (Result{.paths = {{0, 1}, {}, {0, 1}}, .bonus = {8, -1, 9}, .error = {0, 1, 0}}));
  }
}

TEST_P(TreeAcceptTest, TreeBoundsOutsideTheRowsEndInTheErrorFlag) {
  for (const auto& bounds : std::vector<std::vector<int32_t>>{{0, 0}, {-1, 2}, {0, 3}, {2, 1}, {5, 6}}) {
    Trees t;
    t.Add({1, 2}, {-1, 0}, {2, 8});
    t.tree_begin = bounds;
    EXPECT_EQ(RunAccept(GetParam(), t), (Result{.paths = {{}}, .bonus = {-1}, .error = {1}}));
  }
}

TEST_P(TreeAcceptTest, ATreeOfMoreNodesThanABudgetAllowsEndsInTheErrorFlag) {
  for (int nodes : {kTreeAcceptMaxNodes, kTreeAcceptMaxNodes + 1}) {
    Trees t;
    std::vector<int32_t> parents(nodes, 0);
    parents[0] = -1;
    t.Add(std::vector<int32_t>(nodes, 5), parents, std::vector<int32_t>(nodes, 6));
    EXPECT_EQ(RunAccept(GetParam(), t).error[0], nodes > kTreeAcceptMaxNodes ? 1 : 0);
  }
}

TEST_P(TreeAcceptTest, RowsBehindTheNodesOfATreeBelongToNoTree) {
  Trees t;
  t.Add({5, 10, 11, 12}, {-1, 0, 1, -9}, {10, 11, 12, 1});  // the last row is room, whatever it holds
  t.Add({5, 10, 11, 12}, {-1, 0, 1, 2}, {10, 11, 12, 1});
  t.Add({5, 10}, {-1, 0}, {10, 11});
  t.Add({5, 10}, {-1, 0}, {10, 11});
  t.nodes = {3, 2, 0, 99};
  EXPECT_EQ(
      RunAccept(GetParam(), t),
      (Result{.paths = {{0, 1, 2}, {0, 1}, {}, {0, 1}}, .bonus = {12, 11, -1, 11}, .error = {0, 0, 1, 0}}));
}

TEST_P(TreeAcceptTest, TokenZeroIsATokenLikeTheOthers) {
  Trees t;
  t.Add({0, 0, 0}, {-1, 0, 1}, {0, 0, 0});
  EXPECT_EQ(RunAccept(GetParam(), t), (Result{.paths = {{0, 1, 2}}, .bonus = {0}, .error = {0}}));
}

INSTANTIATE_TEST_SUITE_P(Backends, TreeAcceptTest, testing::Values(reference::TreeAccept, cpu::TreeAccept),
                         [](const auto& info) { return info.index == 0 ? "Reference" : "Cpu"; });

TEST(TreeAcceptAgreementTest, RandomTreesSomeWithWildPointersGiveTheReferencesResult) {
  std::mt19937 random(std::random_device{}());
  int errors = 0;
  int deep = 0;
  for (int round = 0; round < 500; ++round) {
    Trees t;
    for (int tree = 0; tree < 4; ++tree) {
      const int nodes = 1 + static_cast<int>(random() % 256);
      std::vector<int32_t> token(nodes);
      std::vector<int32_t> parent(nodes, -1);
      std::vector<int32_t> chosen(nodes);
      for (int i = 0; i < nodes; ++i) {
        token[i] = static_cast<int32_t>(random() % 3);
        chosen[i] = static_cast<int32_t>(random() % 3);
        parent[i] = i == 0 ? -1 : static_cast<int32_t>(random() % i);
      }
      if (random() % 4 == 0) {
        parent[random() % nodes] = static_cast<int32_t>(random());
      }
      t.Add(token, parent, chosen);
    }
    const Result expected = RunAccept(reference::TreeAccept, t);
    EXPECT_EQ(RunAccept(cpu::TreeAccept, t), expected);
    for (size_t tree = 0; tree < expected.paths.size(); ++tree) {
      errors += expected.error[tree];
      deep += expected.paths[tree].size() > 2 ? 1 : 0;
    }
  }
  EXPECT_GT(errors, 50);
  EXPECT_GT(deep, 50);
}

TEST(TreeAcceptArgsTest, SizesThatDisagreeAreRefusedByName) {
  std::vector<int32_t> ints(4);
  std::vector<TokenId> tokens(4);
  TreeAcceptArgs args = {.tree_begin = {ints.data(), 2},
                         .token = {tokens.data(), 4},
                         .parent = {ints.data(), 4},
                         .chosen = {tokens.data(), 4},
                         .path = {ints.data(), 4},
                         .path_length = {ints.data(), 1},
                         .bonus = {tokens.data(), 1},
                         .error = {ints.data(), 1}};
  EXPECT_TRUE(ValidateTreeAccept(args).ok());
  args.parent.size = 3;
  EXPECT_EQ(std::string(ValidateTreeAccept(args).message()), "parent.size=3, expected 4, one for each row");
  args.parent.size = 4;
  args.bonus.size = 2;
  EXPECT_EQ(std::string(ValidateTreeAccept(args).message()), "bonus.size=2, expected 1, one for each tree");
  args.tree_begin.size = 0;
  EXPECT_EQ(ValidateTreeAccept(args).code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace arborist::kernels
