#include "verifier/trial_pace.h"

#include <algorithm>

namespace arborist::verifier {
namespace {

// What lost x seconds is followed by 200 x without it.
constexpr double kSpacing = 200;
constexpr double kHopelessSpacing = 2000;
// And twice as long, up to four times, where trials of trees were in vain.
constexpr int kMostInVain = 2;
// Seconds; a machine's hiccups do not follow its steps.
constexpr double kMostLate = 0.5;

}  // namespace

void TrialPace::Pass(double seconds) {
  clock_ += seconds;
  late_ = std::max(0.0, late_ - seconds / kSpacing);
}

double TrialPace::Late(double seconds) {
  if (seconds <= 0 || late_ >= kMostLate) {
    return std::max(0.0, seconds);
  }
  late_ += seconds;
  return 0;
}

void TrialPace::EndTrialOfTrees(double lost, bool in_vain, double least) {
  next_ = clock_ + std::max(kSpacing * (1 << in_vain_) * lost, least);
  opens_ = lost > 0 ? next_ : opens_;
  in_vain_ = std::min(in_vain_ + (in_vain ? 1 : 0), kMostInVain);
}

void TrialPace::EndTrialOfPlain(double lost, bool hopeless, double least) {
  next_ = clock_ + std::max((hopeless ? kHopelessSpacing : kSpacing) * lost, least);
}

void TrialPace::EnterTrees(double lost, double least) {
  in_trees_ = true;
  lost_ = least_lost_ = std::max(0.0, lost);
  texts_lost_ += lost_;
  next_ = clock_ + least;
}

void TrialPace::Stay(double lost, double credit) {
  lost_ = std::max(-credit, lost_ + lost);
  late_ = std::max(0.0, late_ + std::min(0.0, lost));
  least_lost_ = std::min(least_lost_, lost_);
}

void TrialPace::EndTexts(double most) {
  if (texts_lost_ > most) {
    opens_ = next_ = std::max(next_, clock_ + kSpacing * texts_lost_);
    texts_lost_ = 0;
    in_trees_ = false;
  }
}

void TrialPace::LeaveTrees(double most, double least) {
  in_trees_ = false;
  if (lost_ > 0) {
    next_ = std::max(next_, clock_ + std::max(kSpacing * std::min(lost_, most), least));
    opens_ = next_;
  } else {
    next_ = clock_ + least;
    opens_ = clock_;
    in_vain_ = 0;
  }
}

}  // namespace arborist::verifier
