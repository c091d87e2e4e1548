#pragma once

#include <array>

namespace arborist::verifier {

// How long trees are away from their sequences, from the last committed tokens to the step that verifies
// them, by how many sequences draft.
class AwayTimes {
 public:
  // The wait for others' steps is counted in steps, so that what wide trees had to wait is not held against
  // narrow ones.
  struct Mean {
    double seconds = 0;
    double steps = 0;  // waited
    double trees = 1;  // of them in one step
    int count = 0;
    int rounds = 0;  // seen, ever
  };
  static constexpr int kGroups = 13;
  static constexpr int kRoundsEach = 2;  // of a sequence, at least, to know

  static int Group(int sequences);
  // Rounds of all sequences of a group that are enough to know it.
  static int RoundsToKnow(int group);

  // `seconds` away, then `waited` for a step with so many `trees`, which takes `step` seconds.
  void See(int sequences, double seconds, double waited, double step, int trees);
  // What was seen of so many is of other times.
  void Doubt(int sequences);

  // Of nearly as many sequences, if so many never drafted: rather fewer, which is too good and so gets tried.
  Mean Of(int sequences) const;
  // Of so many alone, even if they are hardly known.
  const Mean& Seen(int sequences) const { return means_[Group(sequences)]; }

 private:
  bool Known(int group) const;

  std::array<Mean, kGroups> means_;
};

}  // namespace arborist::verifier
