#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <span>

#include "verifier/accept_curve.h"
#include "verifier/away_times.h"
#include "verifier/cost_curve.h"
#include "verifier/trial_pace.h"

namespace arborist::verifier {

// What else there is when a budget is decided.
struct BudgetLoad {
  int sequences = 1;        // that follow this decision
  int reading = 0;          // of them, prompts: no step gives these a token yet
  int other_rows = 0;       // of others, in every step
  double other_tokens = 0;  // that these others get from a step
  int most_nodes = 0;       // of a tree
  int most_rows = 0;        // of a step's trees

  int ready() const { return std::max(1, sequences - reading); }
};

// A tree that was verified for one of them.
struct TreeSeen {
  int asked = 0;                  // nodes that the drafter was told to draft
  std::span<const float> score;   // [nodes], the root first
  std::span<const int32_t> path;  // accepted nodes, the root first
  double away_seconds = 0;        // from its last committed tokens until the tree came: draft and wire
  double waited_seconds = 0;      // from then to the start of this step
  bool disturbed = false;  // some drafter caught up with plain decoding meanwhile, or prompts were read
  int trees = 1;           // in this step, of those that follow this decision
  int64_t left = std::numeric_limits<int64_t>::max();  // tokens that the text may still get
};

// Decides for sequences that are alike (one drafter, one kind of sampling) how many nodes are worth drafting;
// 0: plain decoding. It expects from what it has seen: tokens / (away + cost of the step) of all sequences,
// against plain decoding's. What it has not seen lately it tries for a few rounds. Trials and stays in trees
// that lost against plain decoding are followed by so long a time without (TrialPace) that in the long run
// they cost half a percent. Pure: time is an argument.
class BudgetPolicy {
 public:
  explicit BudgetPolicy(const CostCurve& costs) : costs_(costs) {}

  void SeeTree(const TreeSeen& tree);
  void SeePlain() { ++seen_plain_; }
  // Time until the next decision that would have passed whatever they do, such as others' prompts. Before
  // that decision, or it takes them for a loss.
  void Excuse(double seconds) { excused_ += seconds; }

  // After a step with any of the sequences in it: nodes of their next trees. `now` in seconds, never falling;
  // it stands still while there are no such sequences, else trials would be too large a part of what they do.
  int Decide(const BudgetLoad& load, double now);
  // All of the sequences are gone: a trial ends here.
  void Leave(double now);
  // For a sequence that begins: as the others, without a trial.
  int Standing(const BudgetLoad& load) const;

  bool trying() const { return trial_.active; }
  int64_t trials() const { return trials_; }
  // The nodes that promise most, plain decoding left out; 0 if no tree fits.
  int BestTree(const BudgetLoad& load) const;
  // Expected tokens of a round of such a tree.
  double Tokens(int nodes) const { return accept_.Tokens(nodes); }
  // Expected tokens a second of all sequences, the others included, with trees of so many nodes.
  double Rate(const BudgetLoad& load, int nodes) const;

 private:
  // Of trees, in seconds: a whole round, and the step in it.
  struct RoundTime {
    double seconds;
    double step;
  };
  struct Loss {
    double seconds;
    double catching_up;  // more, for which drafters that caught up were waited: of beginnings, not of trees
  };
  struct Trial {
    bool active = false;
    bool trees = false;    // are tried, else plain decoding
    bool returns = false;  // to what was done before
    int nodes = 0;         // to be drafted
    int group = 0;
    int rounds_left = 0;
    int rounds = 0;
    bool first = false;  // of all: whole texts are seen, for beginnings are harder than the rest
    double deadline = 0;
    double lost = 0;        // seconds, until the last decision
    double usual_rate = 0;  // tokens a second without it
    bool hopeless = false;  // plain decoding, as far as is known
  };

  static int Group(int sequences) { return AwayTimes::Group(sequences); }
  static int TreesTogether(const AwayTimes::Mean& away, const BudgetLoad& load);
  bool Fits(const BudgetLoad& load, int nodes) const;
  int WideTree(const BudgetLoad& load) const;
  int TrialTree(const BudgetLoad& load, int best) const;
  int Choose(const BudgetLoad& load) const;
  int Otherwise(const BudgetLoad& load, int nodes) const;
  bool NothingNew(const BudgetLoad& load) const;
  bool Unsettled(const BudgetLoad& load) const;
  bool Closed(const BudgetLoad& load) const;
  bool GivenUp(const BudgetLoad& load) const;
  double PlainStep(const BudgetLoad& load) const;
  RoundTime Round(const BudgetLoad& load, const AwayTimes::Mean& away, int nodes) const;
  Loss Lost(double seconds, double tokens, double rate);
  void Account(double now);
  void BeginTrial(const BudgetLoad& load, int nodes, double now);
  bool TrialIsOver(const BudgetLoad& load, double now) const;
  bool GoOnTrying(const BudgetLoad& load, double now);
  void Return(const BudgetLoad& load, int nodes, double now);
  void EndTrial();
  void Follow(const BudgetLoad& load, int chosen, bool tried);

  const CostCurve& costs_;
  AcceptCurve accept_;
  AwayTimes away_;
  int current_ = 0;    // nodes
  int disturbed_ = 0;  // rounds without one that was not
  Trial trial_;
  std::array<TrialPace, AwayTimes::kGroups> pace_;  // by how many sequences there are
  BudgetLoad load_;                                 // of the last decision
  double excused_ = 0;                              // seconds since then
  double decided_ = 0;                              // when
  bool left_ = true;                                // all were gone since then
  bool caught_up_ = false;                          // some drafter, since then
  int most_here_ = 0;                               // sequences since the first one came
  double tokens_ = 0;                               // of trees since then, as expected
  int seen_plain_ = 0;                              // tokens since then
  int most_lately_ = 0;                             // sequences
  int since_most_ = 0;                              // decisions
  int64_t steps_ = 0;
  int64_t trials_ = 0;
};

}  // namespace arborist::verifier
