#pragma once

#include <array>
#include <chrono>
#include <span>
#include <vector>

#include "verifier/budget_policy.h"
#include "verifier/budget_report.h"
#include "verifier/cost_curve.h"
#include "verifier/sequence_table.h"
#include "verifier/step_runner.h"

namespace arborist::verifier {

// What the owners of AUTO sequences are told to draft next. Keeps what was learned for each kind of sequence
// (with and without features, by temperature) over the sequences' ends, so that a new one begins well. Used
// by the step thread alone.
class SequenceBudgets {
 public:
  using Clock = std::chrono::steady_clock;

  // `bounds`: sizes of steps; `most_rows` of a step's trees.
  SequenceBudgets(std::vector<int> bounds, int most_rows);

  CostCurve& costs() { return costs_; }

  // While a step is planned: counts all sequences that decode now or soon will.
  void BeginCount();
  void Count(const Sequence& sequence);
  void EndCount(Clock::time_point now);

  // After a step: what became of a sequence in it, before Decide. `trees` in all.
  void See(const Sequence& sequence, const TreeOutcome& outcome, Clock::time_point step_begin, int trees);
  // Once for all that were seen.
  void Decide(Clock::time_point now);
  // Of each kind that the step has changed between plain decoding, trees and trials, and of all once a
  // second.
  void Report(Clock::time_point now, const OnBudgetReport& report);
  // A step without prompt rows and controls, everything around it included.
  void SeeStep(int rows, int trees, Clock::time_point begin, Clock::time_point end);

  // A step with prompt rows ended: trees that waited for it were away for longer than drafts take.
  void SeePrompt(Clock::time_point end) { prompt_end_ = end; }
  // A step with prompt rows or controls, or that was compared with an oracle, took longer than the rows of
  // its trees do, which is no loss of those that draft. Before Decide; `trees` may be 0.
  void Excuse(int rows, int trees, Clock::time_point begin, Clock::time_point end);

  // Of the sequence's next tree, after Decide; notes that it is told.
  int Next(Sequence& sequence) const;
  // Of its first tree; the sequence has been counted.
  int First(Sequence& sequence, Clock::time_point now) const;

 private:
  static constexpr int kKinds = 2 * static_cast<int>(kSamplingKinds.size());
  struct Kind {
    BudgetPolicy policy;
    BudgetLoad load;  // as counted; others' part when it is asked for
    double tokens = 0;
    int rows = 0;
    bool seen = false;         // in this step
    int nodes = 0;             // decided
    bool catching_up = false;  // some drafter, with plain decoding
    bool here = false;         // some were counted last time
    bool reported_drafts = false;
    bool reported_trial = false;
    Clock::time_point reported{};
    double clock = 0;               // seconds with some of them, until then
    Clock::time_point caught_up{};  // no drafter had to catch up with plain decoding after this
  };
  static SamplingKind SamplingOf(const Sequence& sequence);
  static int KindOf(const Sequence& sequence);
  BudgetLoad LoadOf(const Kind& kind) const;

  CostCurve costs_;
  const int most_rows_;
  std::vector<Kind> kinds_;
  Clock::time_point prompt_end_;
  Clock::time_point counted_;
  // All that were counted.
  int rows_ = 0;
  double tokens_ = 0;
};

}  // namespace arborist::verifier
