#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "common/base/ids.h"

namespace arborist::drafter {

// A token that may come next, and log P of it.
struct NgramCandidate {
  TokenId token{};
  double log_prob = 0;
};

// What followed earlier occurrences of a context in one sequence. Appending costs O(1) and a lookup a bounded
// number of steps: for contexts of 1, 2 and 4 tokens every position is linked to the one before it with the
// same last tokens. Memory is bounded too: beyond twice `max_history` tokens the older ones are forgotten.
class NgramIndex {
 public:
  static constexpr int kLongestMatch = 8;
  // [length - 1]. Measured: with it, estimates come true about as often as they say (README).
  static constexpr std::array<double, 2> kTrust = {0.65, 0.9};

  explicit NgramIndex(int32_t max_history) : max_history_(max_history) {}

  void Append(TokenId token);
  std::span<const TokenId> tokens() const { return tokens_; }

  // Candidates after the sequence continued by `path`, best first, distinct, at most `limit`, in `out`. A
  // token's estimate is (hits + 1/2) / (trials + 1) in the longest context (up to kLongestMatch tokens) that
  // it ever followed, times kTrust of contexts of one and two tokens, which promise more than they keep. If a
  // longer context is known, where it never followed, that one's (0 + 1/2) / (trials + 1) is a factor too.
  // The shortest context is the empty one: the most frequent tokens, where a token's first occurrence is a
  // miss, since nothing could have predicted it.
  void Candidates(std::span<const TokenId> path, int limit, std::vector<NgramCandidate>& out);

 private:
  static constexpr std::array<int, 3> kOrders = {4, 2, 1};
  static constexpr int kMatchesPerOrder = 48;
  static constexpr int kStepsPerOrder = 4 * kMatchesPerOrder;
  static constexpr size_t kFrequentTokens = 64;

  // The token after an earlier occurrence of the last `length` tokens.
  struct Match {
    TokenId token;
    int length;
  };
  struct Frequent {
    TokenId token;
    int32_t count;
  };

  static uint64_t Key(int order, std::span<const TokenId> newest_first);
  void Link(int32_t position);
  void CountToken(TokenId token);
  void ForgetOldHalf();
  void FindMatches(std::span<const TokenId> context);
  int MatchLength(int32_t position, std::span<const TokenId> context) const;
  void AddMatched(std::vector<NgramCandidate>& out);
  void AddFrequent(std::vector<NgramCandidate>& out) const;

  int32_t max_history_;
  std::vector<TokenId> tokens_;
  std::array<std::vector<int32_t>, kOrders.size()> previous_;  // [tokens]: position, or -1
  std::array<absl::flat_hash_map<uint64_t, int32_t>, kOrders.size()> newest_;
  absl::flat_hash_map<TokenId, int32_t> count_;
  std::vector<Frequent> frequent_;  // descending count

  // Of the last lookup.
  std::vector<Match> matches_;
  std::array<int32_t, kLongestMatch + 1> trials_{};  // [length]: matches at least that long
  int longest_ = 0;
};

}  // namespace arborist::drafter
