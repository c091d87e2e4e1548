#include "coordinator/stop_rule.h"

#include <algorithm>

#include "common/base/check.h"

namespace arborist::coordinator {

StopRule::StopRule(std::vector<std::string> stops) {
  for (std::string& text : stops) {
    Check(!text.empty(), "a stop string is not empty");
    Pattern pattern{std::move(text), {}, 0};
    pattern.fallback.assign(pattern.text.size() + 1, 0);
    for (size_t i = 1, border = 0; i < pattern.text.size(); ++i) {
      while (border > 0 && pattern.text[i] != pattern.text[border]) {
        border = pattern.fallback[border];
      }
      border += pattern.text[i] == pattern.text[border] ? 1 : 0;
      pattern.fallback[i + 1] = static_cast<int>(border);
    }
    patterns_.push_back(std::move(pattern));
  }
}

bool StopRule::Advance(Pattern& pattern, char byte) {
  while (pattern.matched > 0 && pattern.text[pattern.matched] != byte) {
    pattern.matched = pattern.fallback[pattern.matched];
  }
  pattern.matched += pattern.text[pattern.matched] == byte ? 1 : 0;
  return pattern.matched == static_cast<int>(pattern.text.size());
}

StopRule::Result StopRule::Append(std::string_view text) {
  for (const char byte : text) {
    held_.push_back(byte);
    int found = -1;
    for (size_t i = 0; i < patterns_.size(); ++i) {
      if (Advance(patterns_[i], byte) &&
          (found < 0 || patterns_[i].text.size() > patterns_[found].text.size())) {
        found = static_cast<int>(i);
      }
    }
    if (found >= 0) {
      held_.resize(held_.size() - patterns_[found].text.size());
      return {Flush(), found};
    }
  }
  int keep = 0;
  for (const Pattern& pattern : patterns_) {
    keep = std::max(keep, pattern.matched);
  }
  Result result;
  result.text = held_.substr(0, held_.size() - keep);
  held_.erase(0, result.text.size());
  return result;
}

std::string StopRule::Flush() {
  std::string text;
  text.swap(held_);
  return text;
}

}  // namespace arborist::coordinator
