#include "common/grammar/forbidden_strings.h"

#include <deque>

#include "absl/strings/str_cat.h"

namespace arborist {

absl::StatusOr<ForbiddenStrings> ForbiddenStrings::Create(const std::vector<std::string>& strings) {
  if (strings.size() > kMaxStrings) {
    return absl::InvalidArgumentError(
        absl::StrCat("bad_words: ", strings.size(), " entries, expected at most ", kMaxStrings));
  }
  constexpr int32_t kNone = -2;
  std::vector<int32_t> next(256, kNone);
  std::vector<uint8_t> complete(1, 0);
  for (size_t i = 0; i < strings.size(); ++i) {
    if (strings[i].empty() || strings[i].size() > kMaxBytes) {
      return absl::InvalidArgumentError(
          absl::StrCat("bad_words[", i, "]: ", strings[i].size(), " bytes, expected 1 to ", kMaxBytes));
    }
    int32_t state = 0;
    for (const char byte : strings[i]) {
      const size_t slot = static_cast<size_t>(state) * 256 + static_cast<uint8_t>(byte);
      if (next[slot] == kNone) {
        next[slot] = static_cast<int32_t>(complete.size());
        complete.push_back(0);
        next.resize(next.size() + 256, kNone);
      }
      state = next[slot];
    }
    complete[state] = 1;
  }
  // Breadth first: a state's fallback is shorter, so its row is whole already.
  std::vector<int32_t> fallback(complete.size(), 0);
  std::deque<int32_t> work = {0};
  while (!work.empty()) {
    const int32_t state = work.front();
    work.pop_front();
    for (int byte = 0; byte < 256; ++byte) {
      int32_t& to = next[static_cast<size_t>(state) * 256 + byte];
      const int32_t shorter = state == 0 ? 0 : next[static_cast<size_t>(fallback[state]) * 256 + byte];
      if (to == kNone) {
        to = shorter;
        continue;
      }
      fallback[to] = shorter;
      if (complete[to] != 0 || shorter == kDead || complete[shorter] != 0) {
        to = kDead;  // what lies beyond is never reached
      } else {
        work.push_back(to);
      }
    }
  }
  ForbiddenStrings forbidden;
  forbidden.next_ = std::move(next);
  return forbidden;
}

}  // namespace arborist
