#include "drafter/draft_filter.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

namespace arborist::drafter {
namespace {

constexpr int32_t kStop = 256;
constexpr int32_t kIds = kStop + 1;

// Token v below 256 is byte v; 256 is the stop id.
std::shared_ptr<const Constraint> Compile(const std::string& regex) {
  std::vector<std::string> bytes;
  for (int byte = 0; byte < 256; ++byte) {
    bytes.emplace_back(1, static_cast<char>(byte));
  }
  bytes.resize(kIds);
  return *Constraint::Compile({.regex = regex, .stop_ids = {TokenId{kStop}}},
                              std::make_shared<const TokenVocabulary>(std::move(bytes)));
}

std::vector<TokenId> Ids(const std::string& text) {
  std::vector<TokenId> ids;
  for (const char byte : text) {
    ids.push_back(TokenId{static_cast<uint8_t>(byte)});
  }
  return ids;
}

// Distinct children of random nodes, of letters a to f and the stop id.
TokenTree RandomTree(int nodes, std::mt19937& random) {
  TokenTree tree = TokenTree::RootOnly(TokenId{'r'});
  std::vector<std::vector<int32_t>> children(1);
  while (tree.nodes() <= nodes) {
    const auto parent = static_cast<int32_t>(random() % tree.nodes());
    const int32_t token = random() % 7 == 0 ? kStop : static_cast<int32_t>('a' + random() % 6);
    if (std::find(children[parent].begin(), children[parent].end(), token) != children[parent].end()) {
      continue;
    }
    children[parent].push_back(token);
    children.emplace_back();
    tree.token.push_back(TokenId{token});
    tree.parent.push_back(parent);
    tree.score.push_back(tree.score.back() - static_cast<float>(random() % 8) / 8);
  }
  return tree;
}

std::vector<TokenId> PathOf(const TokenTree& tree, int node) {
  std::vector<TokenId> path;
  for (; node > 0; node = tree.parent[node]) {
    path.insert(path.begin(), tree.token[node]);
  }
  return path;
}

// What the definition says of a path: every token is allowed after those before it, and none stands behind a
// stop.
bool Fits(const Constraint& constraint, const std::vector<TokenId>& output,
          const std::vector<TokenId>& path) {
  std::optional<Constraint::State> state = constraint.Start();
  bool stopped = false;
  for (const auto* tokens : {&output, &path}) {
    for (const TokenId token : *tokens) {
      state = state.has_value() && !stopped ? constraint.Advance(*state, token) : std::nullopt;
      stopped = Raw(token) == kStop;
    }
  }
  return state.has_value();
}

TEST(DraftFilter, BadWordsBeginInACharacterThatThePromptLeavesUnfinished) {
  std::vector<std::string> bytes;
  for (int byte = 0; byte < 256; ++byte) {
    bytes.emplace_back(1, static_cast<char>(byte));
  }
  const auto constraint = *Constraint::Compile({.bad_words = {"\xC3\xA9"}},
                                               std::make_shared<const TokenVocabulary>(std::move(bytes)));
  TokenTree tree = TokenTree::RootOnly(TokenId{0xC3});
  tree.token.push_back(TokenId{0xA9});
  tree.parent.push_back(0);
  tree.score.push_back(-1);
  const ProposeArgs args{.shape = TreeShape::kTree, .nodes = 4};
  EXPECT_EQ(DraftFilter(constraint, Ids("caf\xC3"), {}).Filter(tree, args).nodes(), 1);
  EXPECT_EQ(DraftFilter(constraint, Ids("caf"), {}).Filter(tree, args).nodes(), 2);
}

TEST(DraftFilter, KeepsExactlyWhatFitsInItsOrderUpToTheBudget) {
  std::mt19937 random(11);
  for (int round = 0; round < 300; ++round) {
    const auto constraint = Compile(round % 2 == 0 ? "x[a-c]*d?(ab)*" : "x([abc]d|e*f)*");
    const std::vector<TokenId> output = Ids(round % 3 == 0 ? "x" : round % 3 == 1 ? "xa" : "x");
    const DraftFilter filter(constraint, Ids("p"), output);
    const TokenTree tree = RandomTree(1 + static_cast<int>(random() % 60), random);
    const int budget = 1 + static_cast<int>(random() % 20);
    const TokenTree kept = filter.Filter(tree, {.nodes = budget});
    ASSERT_TRUE(ValidateTokenTree(kept, TokenId{'r'}, {.vocab_size = kIds, .max_budget = budget}).ok());
    std::vector<std::vector<TokenId>> expected;
    for (int node = 1; node < tree.nodes(); ++node) {
      if (Fits(*constraint, output, PathOf(tree, node)) && static_cast<int>(expected.size()) < budget) {
        expected.push_back(PathOf(tree, node));
      }
    }
    ASSERT_EQ(kept.nodes() - 1, static_cast<int>(expected.size()));
    for (int node = 1; node < kept.nodes(); ++node) {
      EXPECT_EQ(PathOf(kept, node), expected[node - 1]);
    }
  }
}

TEST(DraftFilter, AChainIsTheBestPathThatFits) {
  const DraftFilter filter(Compile("[b-z]*"), {}, {});
  //                 root  a   b   ab  ba  bc  bcd
  const TokenTree tree{.token = {TokenId{'r'}, TokenId{'a'}, TokenId{'b'}, TokenId{'b'}, TokenId{'a'},
                                 TokenId{'c'}, TokenId{'d'}},
                       .parent = {-1, 0, 0, 1, 2, 2, 5},
                       .score = {0, -1, -2, -3, -4, -5, -6}};
  const ProposeArgs args{.shape = TreeShape::kChain, .nodes = 7};
  EXPECT_EQ(filter.Wider(args).shape, TreeShape::kTree);
  const TokenTree chain = filter.Filter(tree, args);
  EXPECT_EQ(PathOf(chain, chain.nodes() - 1), Ids("bcd"));
  EXPECT_EQ(chain.parent, (std::vector<int32_t>{-1, 0, 1, 2}));
  EXPECT_EQ(filter.Filter(tree, {.shape = TreeShape::kChain, .nodes = 2}).nodes(), 3);
}

TEST(DraftFilter, FollowsWhatIsCommitted) {
  DraftFilter filter(Compile("ab*c"), {}, Ids("a"));
  const TokenTree tree{
      .token = {TokenId{'r'}, TokenId{'b'}, TokenId{kStop}}, .parent = {-1, 0, 0}, .score = {0, -1, -1}};
  EXPECT_EQ(PathOf(filter.Filter(tree, {.nodes = 8}), 1), Ids("b"));
  filter.Append(Ids("bbc"));
  EXPECT_EQ(PathOf(filter.Filter(tree, {.nodes = 8}), 1), std::vector<TokenId>{TokenId{kStop}});
}

TEST(DraftFilter, WithoutAConstraintOrAfterAViolationNothingChanges) {
  std::mt19937 random(2);
  const TokenTree tree = RandomTree(30, random);
  const ProposeArgs args{.nodes = 30};
  for (const DraftFilter& filter : {DraftFilter(nullptr, {}, {}), DraftFilter(Compile("a"), {}, Ids("b"))}) {
    EXPECT_EQ(filter.Wider(args).nodes, 30);
    EXPECT_EQ(filter.Filter(tree, args).token, tree.token);
  }
}

}  // namespace
}  // namespace arborist::drafter
