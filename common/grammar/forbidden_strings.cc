#include "common/grammar/forbidden_strings.h"

#include <deque>
#include <utility>

#include "absl/strings/str_cat.h"

namespace arborist {
namespace {

// While the strings are read: what goes on from a state, and whether a string ends there.
struct Prefix {
  std::vector<std::pair<uint8_t, int32_t>> edges;
  bool complete = false;
};

absl::StatusOr<std::vector<Prefix>> PrefixesOf(const std::vector<std::string>& strings) {
  std::vector<Prefix> prefixes(1);
  for (size_t i = 0; i < strings.size(); ++i) {
    if (strings[i].empty() || strings[i].size() > ForbiddenStrings::kMaxBytes) {
      return absl::InvalidArgumentError(absl::StrCat("bad_words[", i, "]: ", strings[i].size(),
                                                     " bytes, expected 1 to ", ForbiddenStrings::kMaxBytes));
    }
    int32_t at = 0;
    for (const char character : strings[i]) {
      const auto byte = static_cast<uint8_t>(character);
      int32_t next = 0;
      for (const auto& [edge, to] : prefixes[at].edges) {
        next = edge == byte ? to : next;
      }
      if (next == 0) {
        next = static_cast<int32_t>(prefixes.size());
        prefixes[at].edges.emplace_back(byte, next);
        prefixes.emplace_back();
      }
      at = next;
    }
    prefixes[at].complete = true;
  }
  return prefixes;
}

}  // namespace

absl::StatusOr<ForbiddenStrings> ForbiddenStrings::Create(const std::vector<std::string>& strings) {
  if (strings.size() > kMaxStrings) {
    return absl::InvalidArgumentError(
        absl::StrCat("bad_words: ", strings.size(), " entries, expected at most ", kMaxStrings));
  }
  absl::StatusOr<std::vector<Prefix>> prefixes = PrefixesOf(strings);
  if (!prefixes.ok()) {
    return prefixes.status();
  }
  ForbiddenStrings forbidden;
  std::vector<State>& states = forbidden.states_;
  states.resize(prefixes->size() + 1);
  for (size_t at = 0; at < prefixes->size(); ++at) {
    states[at].first_edge = static_cast<int32_t>(forbidden.edge_to_.size());
    for (const auto& [byte, to] : (*prefixes)[at].edges) {
      if (at == 0) {
        forbidden.root_[byte] = to;
      } else {
        forbidden.edge_byte_.push_back(byte);
        forbidden.edge_to_.push_back(to);
      }
    }
  }
  states.back().first_edge = static_cast<int32_t>(forbidden.edge_to_.size());

  // Breadth first: what is shorter has its end decided already.
  std::deque<int32_t> work = {0};
  while (!work.empty()) {
    const int32_t at = work.front();
    work.pop_front();
    const auto decide = [&](uint8_t byte, int32_t& to) {
      const int32_t shorter = at == 0 ? 0 : forbidden.Next(states[at].shorter, byte);
      if ((*prefixes)[to].complete || shorter == kDead) {
        to = kDead;  // what lies beyond is never reached
      } else {
        states[to].shorter = shorter;
        work.push_back(to);
      }
    };
    if (at == 0) {
      for (const auto& [byte, to] : (*prefixes)[0].edges) {
        decide(byte, forbidden.root_[byte]);
      }
    }
    for (int32_t i = states[at].first_edge; i < states[at + 1].first_edge; ++i) {
      decide(forbidden.edge_byte_[i], forbidden.edge_to_[i]);
    }
  }
  return forbidden;
}

size_t ForbiddenStrings::bytes() const {
  return sizeof(*this) + states_.capacity() * sizeof(State) + edge_byte_.capacity() +
         edge_to_.capacity() * sizeof(int32_t);
}

}  // namespace arborist
