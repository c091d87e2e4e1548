#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace arborist {

// Byte strings that an output never contains, also not across tokens (Aho-Corasick). Immutable.
class ForbiddenStrings {
 public:
  static constexpr size_t kMaxStrings = 128;
  static constexpr size_t kMaxBytes = 256;  // of one string
  static constexpr int32_t kDead = -1;

  // InvalidArgument names the entry that is empty or too long. No string: nothing is forbidden.
  static absl::StatusOr<ForbiddenStrings> Create(const std::vector<std::string>& strings);

  // States are suffixes of the output that begin a string; 0 is none.
  int32_t Next(int32_t state, uint8_t byte) const { return next_[static_cast<size_t>(state) * 256 + byte]; }
  bool empty() const { return next_.size() == 256; }

 private:
  std::vector<int32_t> next_;  // [states, 256], kDead where a string would be complete
};

}  // namespace arborist
