#pragma once

#include <algorithm>
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

// Whether a sequence drafts at present: it did so some rounds ago at most. A round takes it some milliseconds
// with a small model on a GPU, and some tens with a large one.
class Presence {
 public:
  using Clock = std::chrono::steady_clock;

  void Drafts(Clock::time_point now) {
    if (const auto since = now - last_; since < kLongestRound) {
      round_ = since;
    }
    last_ = now;
  }
  bool IsThere(Clock::time_point now) const { return now - last_ < std::max(kLeast, kRounds * round_); }

 private:
  // A draft later than that is no answer to the one before.
  static constexpr std::chrono::milliseconds kLongestRound{250};
  // Rounds differ in length, so one that is twice as long is no absence yet.
  static constexpr int kRounds = 4;
  // Prompts of others make single rounds many times as long.
  static constexpr Clock::duration kLeast = std::chrono::milliseconds(20);

  Clock::time_point last_{};
  Clock::duration round_{};
};

}  // namespace arborist::drafter
