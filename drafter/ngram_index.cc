#include "drafter/ngram_index.h"

#include <algorithm>
#include <cmath>
#include <tuple>

namespace arborist::drafter {
namespace {

double Estimate(int32_t hits, int32_t trials) { return (hits + 0.5) / (trials + 1.0); }

double Trust(int length) {
  return length <= static_cast<int>(NgramIndex::kTrust.size()) ? NgramIndex::kTrust[length - 1] : 1.0;
}

}  // namespace

// Exact for one and two tokens; for four a hash, so a match is compared token by token.
uint64_t NgramIndex::Key(int order, std::span<const TokenId> newest_first) {
  uint64_t key = 0;
  for (int i = 0; i < order; ++i) {
    const uint64_t id = static_cast<uint32_t>(Raw(newest_first[i]));
    key = order <= 2 ? (key << 32) | id : (key ^ id) * 0x9e3779b97f4a7c15u + (key >> 29);
  }
  return key;
}

void NgramIndex::Append(TokenId token) {
  if (tokens_.size() >= 2 * static_cast<size_t>(max_history_)) {
    ForgetOldHalf();
  }
  tokens_.push_back(token);
  Link(static_cast<int32_t>(tokens_.size()) - 1);
  CountToken(token);
}

void NgramIndex::Link(int32_t position) {
  std::array<TokenId, 4> newest_first{};
  const int known = std::min<int>(position + 1, newest_first.size());
  for (int i = 0; i < known; ++i) {
    newest_first[i] = tokens_[position - i];
  }
  for (size_t o = 0; o < kOrders.size(); ++o) {
    if (known < kOrders[o]) {
      previous_[o].push_back(-1);
      continue;
    }
    const auto [entry, added] = newest_[o].try_emplace(Key(kOrders[o], newest_first), position);
    previous_[o].push_back(added ? -1 : entry->second);
    entry->second = position;
  }
}

void NgramIndex::CountToken(TokenId token) {
  const int32_t count = ++count_[token];
  auto place =
      std::find_if(frequent_.begin(), frequent_.end(), [&](const Frequent& f) { return f.token == token; });
  if (place == frequent_.end()) {
    if (frequent_.size() == kFrequentTokens) {
      if (frequent_.back().count >= count) {
        return;
      }
      frequent_.pop_back();
    }
    place = frequent_.insert(frequent_.end(), {token, count});
  }
  place->count = count;
  for (; place != frequent_.begin() && (place - 1)->count < count; --place) {
    std::iter_swap(place, place - 1);
  }
}

void NgramIndex::ForgetOldHalf() {
  const std::vector<TokenId> kept(tokens_.end() - max_history_, tokens_.end());
  tokens_.clear();
  count_.clear();
  frequent_.clear();
  for (size_t o = 0; o < kOrders.size(); ++o) {
    previous_[o].clear();
    newest_[o].clear();
  }
  for (const TokenId token : kept) {
    Append(token);
  }
}

int NgramIndex::MatchLength(int32_t position, std::span<const TokenId> context) const {
  int length = 0;
  while (length < static_cast<int>(context.size()) && length <= position &&
         tokens_[position - length] == context[length]) {
    ++length;
  }
  return length;
}

void NgramIndex::FindMatches(std::span<const TokenId> context) {
  matches_.clear();
  const int32_t last = static_cast<int32_t>(tokens_.size()) - 1;
  int collected_from = kLongestMatch + 1;  // matches this long came with a longer order
  for (size_t o = 0; o < kOrders.size(); ++o) {
    const int order = kOrders[o];
    if (static_cast<int>(context.size()) < order) {
      continue;
    }
    const auto newest = newest_[o].find(Key(order, context));
    int32_t position = newest == newest_[o].end() ? -1 : newest->second;
    int found = 0;
    for (int step = 0; position >= 0 && found < kMatchesPerOrder && step < kStepsPerOrder; ++step) {
      const int length = MatchLength(position, context);
      if (position < last && length >= order && length < collected_from) {
        matches_.push_back({tokens_[position + 1], length});
        ++found;
      }
      position = previous_[o][position];
    }
    collected_from = order;
  }
}

void NgramIndex::AddMatched(std::vector<NgramCandidate>& out) {
  std::sort(matches_.begin(), matches_.end(), [](const Match& a, const Match& b) {
    return std::tuple(Raw(a.token), -a.length) < std::tuple(Raw(b.token), -b.length);
  });
  for (size_t i = 0; i < matches_.size();) {
    const Match best = matches_[i];  // the longest context of this token
    int32_t hits = 0;
    for (; i < matches_.size() && matches_[i].token == best.token; ++i) {
      hits += matches_[i].length == best.length ? 1 : 0;
    }
    const double escape = best.length < longest_ ? Estimate(0, trials_[longest_]) : 1.0;
    out.push_back({best.token, std::log(Estimate(hits, trials_[best.length]) * Trust(best.length) * escape)});
  }
}

void NgramIndex::AddFrequent(std::vector<NgramCandidate>& out) const {
  const double escape = longest_ > 0 ? Estimate(0, trials_[longest_]) : 1.0;
  const size_t matched = out.size();  // ascending by token
  for (const Frequent& f : frequent_) {
    const auto place =
        std::lower_bound(out.begin(), out.begin() + matched, f.token,
                         [](const NgramCandidate& c, TokenId t) { return Raw(c.token) < Raw(t); });
    if (place == out.begin() + matched || place->token != f.token) {
      const double probability = Estimate(f.count - 1, static_cast<int32_t>(tokens_.size()));
      out.push_back({f.token, std::log(probability * escape)});
    }
  }
}

void NgramIndex::Candidates(std::span<const TokenId> path, int limit, std::vector<NgramCandidate>& out) {
  out.clear();
  std::array<TokenId, kLongestMatch> newest_first{};
  const size_t known = std::min<size_t>(path.size() + tokens_.size(), kLongestMatch);
  for (size_t i = 0; i < known; ++i) {
    newest_first[i] =
        i < path.size() ? path[path.size() - 1 - i] : tokens_[tokens_.size() - 1 - (i - path.size())];
  }
  FindMatches(std::span(newest_first).first(known));
  trials_.fill(0);
  longest_ = 0;
  for (const Match& match : matches_) {
    longest_ = std::max(longest_, match.length);
    for (int length = 1; length <= match.length; ++length) {
      ++trials_[length];
    }
  }
  AddMatched(out);
  AddFrequent(out);
  const auto better = [](const NgramCandidate& a, const NgramCandidate& b) {
    return std::tuple(-a.log_prob, Raw(a.token)) < std::tuple(-b.log_prob, Raw(b.token));
  };
  std::sort(out.begin(), out.end(), better);
  out.resize(std::min<size_t>(out.size(), limit));
}

}  // namespace arborist::drafter
