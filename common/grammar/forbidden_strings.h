#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace arborist {

// Byte strings that an output never contains, also not across tokens (Aho-Corasick). Immutable. A state costs
// about as many bytes as it has characters that go on, not a row of 256: 128 strings of 256 bytes take half a
// megabyte.
class ForbiddenStrings {
 public:
  static constexpr size_t kMaxStrings = 128;
  static constexpr size_t kMaxBytes = 256;  // of one string
  static constexpr int32_t kDead = -1;

  // InvalidArgument names the entry that is empty or too long. No string: nothing is forbidden.
  static absl::StatusOr<ForbiddenStrings> Create(const std::vector<std::string>& strings);

  // States are suffixes of the output that begin a string; 0 is none. kDead where a string would be complete.
  int32_t Next(int32_t state, uint8_t byte) const {
    while (state != 0) {
      for (int32_t i = states_[state].first_edge; i < states_[state + 1].first_edge; ++i) {
        if (edge_byte_[i] == byte) {
          return edge_to_[i];
        }
      }
      state = states_[state].shorter;
    }
    return root_[byte];
  }
  bool empty() const { return states_.size() <= 2; }  // of one state: the root
  size_t bytes() const;                               // of memory

 private:
  struct State {
    int32_t first_edge = 0;  // up to the next state's
    int32_t shorter = 0;     // the longest true suffix that is a state
  };

  std::array<int32_t, 256> root_{};
  std::vector<State> states_;  // with one more at the end, for first_edge
  std::vector<uint8_t> edge_byte_;
  std::vector<int32_t> edge_to_;
};

}  // namespace arborist
