#pragma once

#include <algorithm>

namespace arborist::verifier {

// When sequences may leave what they do, of one number of sequences. Trials are paced by what they lost. So
// is a stay in trees, the trial that led there included, for trees may promise what does not come, with costs
// that nobody has seen for a while or that fewer sequences showed. What it lost against plain decoding is
// followed by 200 times as long without trees. Seconds are of a clock that runs while there are so many.
class TrialPace {
 public:
  void Pass(double seconds);

  // Nothing keeps them from a trial.
  bool due() const { return clock_ >= next_; }
  // Trees have lost, and plain decoding is not to be left for them yet.
  bool closed() const { return !in_trees_ && clock_ < opens_; }
  // What so many did last, trials left out.
  bool in_trees() const { return in_trees_; }
  // So many were here before.
  bool known() const { return next_ >= 0; }

  // In all of these `least` seconds pass before a trial in any case.
  void BeginPlainly(double least) { next_ = clock_ + least; }
  // `lost` seconds, below zero if it won. In vain: trees do not pay.
  void EndTrialOfTrees(double lost, bool in_vain, double least);
  // Hopeless: even before it, plain decoding promised far less than trees.
  void EndTrialOfPlain(double lost, bool hopeless, double least);
  // `lost` by the trial that led here, 0 if none did.
  void EnterTrees(double lost, double least);
  // In trees: what was lost meanwhile, below zero if it was won. That pays for what was lost before, and no
  // more than `credit` of it for what this stay loses later.
  void Stay(double lost, double credit);
  // The same of whole texts: from where sequences came, so many at most, until none is left. What drafters
  // need at the beginning of each is a loss that the middle does not show.
  void StayOfTexts(double lost, double credit) { texts_lost_ = std::max(-credit, texts_lost_ + lost); }
  // None is left. Texts that lost more than `most` are followed by others without trees.
  void EndTexts(double most);
  // What of so many seconds, by which trees came later than anybody expects, is a loss: nothing as long as
  // such hiccups are a two-hundredth of the time or trees win more meanwhile, for they say nothing of what
  // comes.
  double Late(double seconds);
  // Since they entered trees or had won most.
  double stay_lost() const { return lost_ - least_lost_; }
  // No more than `most` seconds are charged: a long stay lost most of it in other times. One that won opens
  // trees again, whatever the trial that led there lost.
  void LeaveTrees(double most, double least);

 private:
  double clock_ = 0;
  double next_ = -1;  // trial; -1: so many were never seen
  double opens_ = 0;
  double lost_ = 0;        // by this stay in trees and the trial that led there
  double least_lost_ = 0;  // the least that it was
  double texts_lost_ = 0;  // in trees, beginnings included
  double late_ = 0;        // forgiven and not made good
  int in_vain_ = 0;        // the last trials of trees
  bool in_trees_ = false;
};

}  // namespace arborist::verifier
