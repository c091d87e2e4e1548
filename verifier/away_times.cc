#include "verifier/away_times.h"

#include <algorithm>

#include "verifier/cost_curve.h"

namespace arborist::verifier {
namespace {

constexpr double kSlowest = 1.0 / 16;
constexpr double kOutlier = 4;

}  // namespace

int AwayTimes::Group(int sequences) { return std::min(DoublingGroup(sequences), kGroups - 1); }

// A few of each sequence: the first ones of a crowd are not like the rest.
int AwayTimes::RoundsToKnow(int group) { return std::max(8, kRoundsEach << group); }

bool AwayTimes::Known(int group) const { return means_[group].rounds >= RoundsToKnow(group); }

// All sequences see the same hiccup, so the mean moves by rounds of all.
void AwayTimes::See(int sequences, double seconds, double waited, double step, int trees) {
  Mean& mean = means_[Group(sequences)];
  double steps = waited / step;
  if (mean.count > 0) {
    seconds = std::min(seconds, kOutlier * mean.seconds + 1e-5);
    steps = std::min(steps, kOutlier * mean.steps + 1);
  }
  mean.count = std::min(mean.count + 1, 1 << 20);
  mean.rounds = std::min(mean.rounds + 1, 1 << 20);
  const double part = std::max(kSlowest / sequences, 1.0 / mean.count);
  mean.seconds += part * (seconds - mean.seconds);
  mean.steps += part * (steps - mean.steps);
  mean.trees += part * (trees - mean.trees);
}

void AwayTimes::Doubt(int sequences) {
  Mean& mean = means_[Group(sequences)];
  mean.count = std::min(mean.count, sequences);
}

AwayTimes::Mean AwayTimes::Of(int sequences) const {
  const int group = Group(sequences);
  for (int distance = 0; distance < kGroups; ++distance) {
    for (const int near : {group - distance, group + distance}) {
      if (near >= 0 && near < kGroups && Known(near)) {
        Mean mean = means_[near];
        if (near != group) {
          mean.trees = sequences;
        }
        return mean;
      }
    }
  }
  return {.seconds = 0, .trees = static_cast<double>(sequences)};
}

}  // namespace arborist::verifier
