#pragma once

#include <chrono>

namespace arborist::drafter {

// When a round of drafting starts for what waits. The answers of one verify step come tens of microseconds
// apart: drafting for the first one at once would let all others wait for a round of one. So the first waits
// until half of the sequences that draft are there, or for `patience`. With one half drafted while the other
// is verified, neither side waits for the other; one or two sequences never wait.
struct GatherRule {
  std::chrono::microseconds patience{0};

  // `waiting` >= 1 sequences wait, the first for so long; `drafting` is how many draft at present, these
  // included; a round takes at most `most`.
  bool Starts(int waiting, int drafting, int most, std::chrono::nanoseconds waited) const {
    return 2 * waiting >= drafting || waiting >= most || waited >= patience;
  }
};

}  // namespace arborist::drafter
