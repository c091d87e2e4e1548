#include "drafter/ngram_index.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <random>
#include <tuple>

namespace arborist::drafter {
namespace {

using ::testing::ElementsAre;

std::vector<TokenId> Ids(const std::vector<int>& raw) {
  std::vector<TokenId> ids;
  for (const int id : raw) {
    ids.push_back(TokenId{id});
  }
  return ids;
}

NgramIndex IndexOf(const std::vector<TokenId>& tokens, int32_t max_history = 1 << 16) {
  NgramIndex index(max_history);
  for (const TokenId token : tokens) {
    index.Append(token);
  }
  return index;
}

std::vector<NgramCandidate> CandidatesOf(NgramIndex& index, const std::vector<TokenId>& path,
                                         int limit = 255) {
  std::vector<NgramCandidate> out;
  index.Candidates(path, limit, out);
  return out;
}

// The header's definition by plain loops over all positions.
std::vector<NgramCandidate> BruteForce(const std::vector<TokenId>& tokens, const std::vector<TokenId>& path) {
  std::vector<TokenId> context = tokens;
  context.insert(context.end(), path.begin(), path.end());
  constexpr int kLongest = NgramIndex::kLongestMatch;
  std::vector<int> trials(kLongest + 1, 0);
  std::map<int, std::vector<int>> hits;  // token -> by length, of contexts at least that long
  std::map<int, int> count;
  for (size_t i = 0; i < tokens.size(); ++i) {
    ++count[Raw(tokens[i])];
    int length = 0;
    while (length < kLongest && length <= static_cast<int>(i) && length < static_cast<int>(context.size()) &&
           tokens[i - length] == context[context.size() - 1 - length]) {
      ++length;
    }
    if (i + 1 == tokens.size()) {
      break;
    }
    std::vector<int>& of_token = hits[Raw(tokens[i + 1])];
    of_token.resize(kLongest + 1);
    for (int l = 1; l <= length; ++l) {
      ++trials[l];
      ++of_token[l];
    }
  }
  int longest = kLongest;
  while (longest > 0 && trials[longest] == 0) {
    --longest;
  }
  std::vector<NgramCandidate> all;
  for (const auto& [token, times] : count) {
    std::vector<int>& of_token = hits[token];
    of_token.resize(kLongest + 1);
    int best = kLongest;
    while (best > 0 && of_token[best] == 0) {
      --best;
    }
    double probability = (times - 1 + 0.5) / (static_cast<double>(tokens.size()) + 1.0);
    if (best > 0) {
      probability = (of_token[best] + 0.5) / (trials[best] + 1.0);
      probability *= best == 1 ? NgramIndex::kTrust[0] : best == 2 ? NgramIndex::kTrust[1] : 1.0;
    }
    probability *= best < longest ? 0.5 / (trials[longest] + 1.0) : 1.0;
    all.push_back({TokenId{token}, std::log(probability)});
  }
  std::sort(all.begin(), all.end(), [](const NgramCandidate& a, const NgramCandidate& b) {
    return std::tuple(-a.log_prob, Raw(a.token)) < std::tuple(-b.log_prob, Raw(b.token));
  });
  return all;
}

TEST(NgramIndexTest, ContinuesTheLongestEarlierContext) {
  NgramIndex index = IndexOf(Ids({1, 2, 3, 4, 9, 2, 3, 5, 1, 2, 3}));
  const std::vector<NgramCandidate> found = CandidatesOf(index, {});
  ASSERT_GE(found.size(), 2u);
  // "1 2 3" was followed by 4, once: (1 + 1/2) / (1 + 1).
  EXPECT_EQ(found[0].token, TokenId{4});
  EXPECT_DOUBLE_EQ(found[0].log_prob, std::log(0.75));
  // 5 never followed "1 2 3" (0.5 / 2), but "2 3" in one of two cases (1.5 / 3,
  // times the trust in two tokens).
  EXPECT_EQ(found[1].token, TokenId{5});
  EXPECT_DOUBLE_EQ(found[1].log_prob, std::log(0.5 * 0.9 * 0.25));
}

TEST(NgramIndexTest, ThePathIsPartOfTheContext) {
  NgramIndex index = IndexOf(Ids({1, 2, 3, 4, 1, 2, 7, 8, 1}));
  EXPECT_EQ(CandidatesOf(index, Ids({2}))[0].token, TokenId{3});
  EXPECT_EQ(CandidatesOf(index, Ids({2, 7}))[0].token, TokenId{8});
  EXPECT_EQ(CandidatesOf(index, Ids({2, 3}))[0].token, TokenId{4});
}

TEST(NgramIndexTest, FrequentTokensFillUpWithoutAnyMatch) {
  NgramIndex index = IndexOf(Ids({5, 6, 5, 7, 5, 8}));
  const std::vector<NgramCandidate> found = CandidatesOf(index, {});
  ASSERT_EQ(found.size(), 4u);
  EXPECT_EQ(found[0].token, TokenId{5});
  // Three times among six, the first of which nobody could have foreseen.
  EXPECT_DOUBLE_EQ(found[0].log_prob, std::log(2.5 / 7));
  EXPECT_DOUBLE_EQ(found[3].log_prob, std::log(0.5 / 7));
}

TEST(NgramIndexTest, OneTokenOffersItself) {
  NgramIndex index = IndexOf(Ids({3}));
  const std::vector<NgramCandidate> found = CandidatesOf(index, {});
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].token, TokenId{3});
  EXPECT_LT(found[0].log_prob, 0);
}

TEST(NgramIndexTest, LimitKeepsTheBest) {
  NgramIndex index = IndexOf(Ids({1, 2, 1, 3, 1, 2, 1, 4, 1}));
  const std::vector<NgramCandidate> all = CandidatesOf(index, {});
  const std::vector<NgramCandidate> two = CandidatesOf(index, {}, 2);
  ASSERT_EQ(two.size(), 2u);
  EXPECT_EQ(two[0].token, all[0].token);
  EXPECT_EQ(two[1].token, all[1].token);
}

TEST(NgramIndexTest, EqualsBruteForceWhileNothingIsBounded) {
  // Few enough occurrences of each context that the index looks at all of them.
  for (uint32_t seed = 0; seed < 60; ++seed) {
    std::mt19937 random(seed);
    const int vocabulary = 2 + static_cast<int>(random() % 12);
    std::vector<TokenId> tokens(1 + random() % 60), path(random() % 6);
    for (TokenId& token : tokens) {
      token = TokenId{static_cast<int32_t>(random() % vocabulary)};
    }
    for (TokenId& token : path) {
      token = TokenId{static_cast<int32_t>(random() % (vocabulary + 1))};
    }
    NgramIndex index = IndexOf(tokens);
    const std::vector<NgramCandidate> found = CandidatesOf(index, path), expected = BruteForce(tokens, path);
    ASSERT_EQ(found.size(), expected.size()) << seed;
    for (size_t i = 0; i < found.size(); ++i) {
      EXPECT_EQ(found[i].token, expected[i].token) << seed << " " << i;
      EXPECT_EQ(found[i].log_prob, expected[i].log_prob) << seed << " " << i;
    }
  }
}

TEST(NgramIndexTest, OldTokensAreForgottenAndTheRestIsAsIfAlone) {
  std::mt19937 random(7);
  NgramIndex index(32);
  std::vector<TokenId> all;
  for (int i = 0; i < 500; ++i) {
    all.push_back(TokenId{static_cast<int32_t>(random() % 9)});
    index.Append(all.back());
    ASSERT_LE(index.tokens().size(), 64u);
    ASSERT_GE(index.tokens().size(), std::min<size_t>(all.size(), 32));
  }
  const std::vector<TokenId> kept(index.tokens().begin(), index.tokens().end());
  EXPECT_TRUE(std::equal(kept.rbegin(), kept.rend(), all.rbegin()));
  NgramIndex alone = IndexOf(kept);
  const std::vector<NgramCandidate> found = CandidatesOf(index, {}), expected = CandidatesOf(alone, {});
  ASSERT_EQ(found.size(), expected.size());
  for (size_t i = 0; i < found.size(); ++i) {
    EXPECT_EQ(found[i].token, expected[i].token);
    EXPECT_EQ(found[i].log_prob, expected[i].log_prob);
  }
}

TEST(NgramIndexTest, ALookupInALongMonotonousTextIsBounded) {
  // Every position matches; only the newest ones are looked at, so trials stay small and the call quick.
  NgramIndex index = IndexOf(std::vector<TokenId>(100000, TokenId{1}));
  const std::vector<NgramCandidate> found = CandidatesOf(index, {});
  ASSERT_EQ(found.size(), 1u);
  EXPECT_GT(found[0].log_prob, std::log(0.98));
  EXPECT_LT(found[0].log_prob, 0);
}

}  // namespace
}  // namespace arborist::drafter
