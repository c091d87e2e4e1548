#include "verifier/budget_policy.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace arborist::verifier {
namespace {

constexpr double kSlowest = 1.0 / 16;
constexpr double kOutlier = 4;
// What another choice must promise over the present one: less than the promise of never losing 2 %.
constexpr double kAhead = 1.01;
// A first tree, while nothing is known.
constexpr int kFirstNodes = 16;
// Of a trial, for each sequence, when no drafter has to catch up any more.
constexpr int kTrialRounds = 2;
constexpr int kTrialTokens = 4;
// Of the first trial of all, unless trees would lose with so many times the tokens.
constexpr int kFirstRounds = 64;
constexpr double kHope = 2;
// A trial that cost x seconds is followed by 200 x without one.
constexpr double kTrialSpacing = 200;
constexpr double kHopelessSpacing = 2000;
// Where trees won a trial and lost later, trees are tried sooner again.
constexpr double kReturnSpacing = 50;
// And twice as long, up to four times, where trees did not win the last times.
constexpr int kMostInVain = 2;
// A decision takes some microseconds between two steps, a hundredth of a short one; plain decoding stays what
// it is for so many.
constexpr int kLookEvery = 16;
// Sequences that come and go disturb each other; where they always do, so many rounds of each are all like
// that.
constexpr int kAlwaysDisturbed = 16;
constexpr int kLeastStepsBetween = 64;
// One step in so many asks for a larger tree than pays, where none that large was seen or it pays nearly.
constexpr int kLargerEvery = 64;
constexpr double kNearly = 0.7;

// Of all sequences; a trial has as many, or it would not tell.
int RoundsToKnow(int group) { return std::max(8, kTrialRounds << group); }

}  // namespace

void BudgetPolicy::SeeTree(const TreeSeen& tree) {
  accept_.See(tree.asked, tree.score, tree.path, sequences_);
  disturbed_ = tree.disturbed ? disturbed_ + 1 : 0;
  const bool counts = !tree.disturbed || disturbed_ > kAlwaysDisturbed * sequences_;
  if (counts) {
    SeeAway(tree);
  }
  if (trial_.active) {
    // What is expected, not what came: luck must not bring the next trial sooner.
    trial_.tokens += accept_.Tokens(static_cast<int>(tree.score.size()) - 1);
    const int rounds = trial_.nodes > 0 && counts ? 1 : 0;
    trial_.rounds += rounds;
    trial_.rounds_left -= rounds;
  }
}

// All sequences see the same hiccup, so the mean moves by rounds of all.
void BudgetPolicy::SeeAway(const TreeSeen& tree) {
  Away& away = away_[Group(sequences_)];
  const double step =
      costs_.Seconds(tree.trees * std::max<int>(1, static_cast<int>(tree.score.size())), tree.trees);
  double seconds = tree.away_seconds;
  double steps = tree.waited_seconds / step;
  if (away.count > 0) {
    seconds = std::min(seconds, kOutlier * away.seconds + 1e-5);
    steps = std::min(steps, kOutlier * away.steps + 1);
  }
  away.count = std::min(away.count + 1, 1 << 20);
  away.rounds = std::min(away.rounds + 1, 1 << 20);
  const double part = std::max(kSlowest / sequences_, 1.0 / away.count);
  away.seconds += part * (seconds - away.seconds);
  away.steps += part * (steps - away.steps);
  away.trees += part * (tree.trees - away.trees);
}

int BudgetPolicy::Group(int sequences) { return std::min(DoublingGroup(sequences), kGroups - 1); }

// A few rounds of each sequence: the first ones of a crowd are not like the rest.
bool BudgetPolicy::Known(int group) const { return away_[group].rounds >= RoundsToKnow(group); }

// Of nearly as many sequences, if so many never drafted: rather fewer, which is too good and so gets tried.
BudgetPolicy::Away BudgetPolicy::AwayOf(int sequences) const {
  const int group = Group(sequences);
  for (int distance = 0; distance < kGroups; ++distance) {
    for (const int near : {group - distance, group + distance}) {
      if (near >= 0 && near < kGroups && Known(near)) {
        Away away = away_[near];
        if (near != group) {
          away.trees = sequences;
        }
        return away;
      }
    }
  }
  return {.seconds = 0, .trees = static_cast<double>(sequences)};
}

int BudgetPolicy::TreesTogether(const Away& away, const BudgetLoad& load) {
  return std::clamp(static_cast<int>(std::lround(away.trees)), 1, load.sequences);
}

double BudgetPolicy::Rate(const BudgetLoad& load, int nodes) const {
  if (nodes == 0) {
    const double step = costs_.Seconds(load.sequences + load.other_rows, load.sequences + load.other_rows);
    return (load.sequences + load.other_tokens) / step;
  }
  const Away away = AwayOf(load.sequences);
  const int trees = TreesTogether(away, load);
  const double step = costs_.Seconds(trees * (nodes + 1) + load.other_rows, trees + load.other_rows);
  // Groups that take turns wait for each other's steps, however soon their trees come.
  const double round = std::max(away.seconds + (1 + away.steps) * step, step * load.sequences / trees);
  return load.sequences * accept_.Tokens(nodes) / round + load.other_tokens / step;
}

bool BudgetPolicy::Fits(const BudgetLoad& load, int nodes) const {
  const int trees = TreesTogether(AwayOf(load.sequences), load);
  return nodes >= 1 && nodes <= load.most_nodes && trees * (nodes + 1) + load.other_rows <= load.most_rows;
}

// Every other trial is of a wide tree: what is known of trees may be of other times, and a small one tells
// nothing of the larger.
int BudgetPolicy::TrialTree(const BudgetLoad& load, int best) const {
  return trials_ % 2 == 0 ? best : std::max(best, WideTree(load));
}

int BudgetPolicy::WideTree(const BudgetLoad& load) const {
  int wide = std::min(kFirstNodes, load.most_nodes);
  while (wide > 0 && !Fits(load, wide)) {
    --wide;
  }
  return wide;
}

// Trees that fill a size of steps: nodes up to there cost nothing more.
int BudgetPolicy::BestTree(const BudgetLoad& load) const {
  const int trees = TreesTogether(AwayOf(load.sequences), load);
  const double current = Fits(load, current_) ? Rate(load, current_) : 0;
  int best = current > 0 ? current_ : 0;
  double best_rate = current * kAhead;
  const auto look = [&](int nodes) {
    nodes = std::min(nodes, load.most_nodes);
    if (!Fits(load, nodes)) {
      return;
    }
    if (const double rate = Rate(load, nodes); rate > best_rate) {
      best = nodes;
      best_rate = rate;
    }
  };
  for (const int bound : costs_.bounds()) {
    look((bound - load.other_rows) / trees - 1);
  }
  look(load.most_nodes);
  return best;
}

int BudgetPolicy::Choose(const BudgetLoad& load) const {
  const int tree = BestTree(load);
  if (tree == 0) {
    return 0;
  }
  const double ratio = Rate(load, tree) / Rate(load, 0);
  return ratio > (current_ > 0 ? 1 / kAhead : kAhead) ? tree : 0;
}

int BudgetPolicy::Standing(const BudgetLoad& load) const {
  if (load.most_nodes == 0) {
    return 0;
  }
  if (trial_.active) {
    return std::min(trial_.nodes, load.most_nodes);
  }
  return accept_.known() ? Choose(load) : std::min(kFirstNodes, load.most_nodes);
}

void BudgetPolicy::BeginTrial(const BudgetLoad& load, int nodes, double now) {
  const double rate = Rate(load, current_);
  const bool first = trials_ == 0;
  const int rounds = nodes == 0 ? kTrialTokens : first ? kFirstRounds : kTrialRounds;
  trial_ = {
      .active = true,
      .nodes = nodes,
      .group = Group(load.sequences),
      .rounds_left = nodes > 0 && !first ? RoundsToKnow(Group(load.sequences)) : rounds * load.sequences,
      .first = first,
      .begun = now,
      .deadline = now + 64 * load.sequences / rate + 10 * rounds * load.sequences / Rate(load, nodes),
      .tokens = 0,
      .usual_rate = rate,
      .hopeless = Rate(load, nodes) < kNearly * rate && nodes == 0};
  seen_plain_ = 0;
  ++trials_;
  if (nodes > 0) {
    Away& away = away_[Group(load.sequences)];
    away.count = std::min(away.count, load.sequences);
    accept_.Doubt();
  }
}

bool BudgetPolicy::NothingNew(const BudgetLoad& load) const {
  return current_ == 0 && load.sequences == sequences_ && load.other_rows == other_rows_ &&
         steps_ % kLookEvery != 0;
}

bool BudgetPolicy::TrialIsOver(const BudgetLoad& load, double now) const {
  if (trial_.rounds_left <= 0 || now >= trial_.deadline) {
    return true;
  }
  return trial_.first && trial_.rounds >= kTrialRounds * load.sequences &&
         kHope * Rate(load, trial_.nodes) < Rate(load, 0);
}

// Out of trees and back there is the way of a Decode, too.
void BudgetPolicy::EndTrial(double now) {
  Pace& pace = pace_[trial_.group];
  double lost = now - trial_.begun - trial_.tokens / trial_.usual_rate + away_[trial_.group].seconds;
  if (trial_.first && trial_.rounds > kTrialRounds * sequences_) {
    lost *= static_cast<double>(kTrialRounds) * sequences_ / trial_.rounds;  // that much once
  }
  pace.lost = trial_.nodes > 0 ? std::max(0.0, lost) : pace.lost;
  const double spacing = trial_.hopeless ? kHopelessSpacing : kTrialSpacing * (1 << pace.in_vain);
  pace.in_vain = trial_.nodes > 0 ? std::min(pace.in_vain + 1, kMostInVain) : 0;
  pace.next_trial =
      pace.clock + std::max(spacing * lost, kLeastStepsBetween * sequences_ / trial_.usual_rate);
  trial_.active = false;
}

void BudgetPolicy::Leave(double now) {
  if (trial_.active) {
    EndTrial(now);
  }
}

int BudgetPolicy::Larger(const BudgetLoad& load, int nodes) const {
  const int larger = std::min(2 * nodes, load.most_nodes);
  return Fits(load, larger) && Rate(load, larger) > kNearly * Rate(load, nodes) ? larger : nodes;
}

int BudgetPolicy::Decide(const BudgetLoad& load, double now) {
  if (load.most_nodes == 0) {
    return 0;
  }
  ++steps_;
  bool look = !NothingNew(load);
  sequences_ = load.sequences;
  other_rows_ = load.other_rows;
  Pace& pace = pace_[Group(load.sequences)];
  pace.clock += now - std::exchange(decided_, now);
  if (trial_.active) {
    if (trial_.nodes == 0) {
      trial_.tokens += static_cast<double>(seen_plain_);
      trial_.rounds_left -= static_cast<int>(seen_plain_);
    }
    seen_plain_ = 0;
    if (trial_.first && trial_.rounds >= kTrialRounds * load.sequences) {
      trial_.nodes = std::max(1, BestTree(load));  // the wide ones have told enough
    }
    if (!TrialIsOver(load, now)) {
      return std::min(trial_.nodes, load.most_nodes);
    }
    EndTrial(now);
    look = true;
  }
  if (!look && pace.clock < pace.next_trial) {
    return 0;
  }
  if (trials_ == 0) {
    current_ = 0;
    BeginTrial(load, std::max(1, WideTree(load)), now);
    return trial_.nodes;
  }
  const int chosen = Choose(load);
  const double least = kLeastStepsBetween * load.sequences / Rate(load, chosen);
  if (chosen == 0 && pace.trees) {
    pace.next_trial = pace.clock + std::max(least, kReturnSpacing * pace.lost);
  } else if (chosen > 0 && !pace.trees) {
    pace.next_trial = std::max(pace.next_trial, pace.clock + least);
  } else if (pace.next_trial < 0) {
    pace.next_trial = pace.clock + least;
  }
  current_ = chosen;
  pace.trees = chosen > 0;
  pace.in_vain = chosen > 0 ? 0 : pace.in_vain;
  if (const int tree = BestTree(load); pace.clock >= pace.next_trial && (current_ > 0 || tree > 0)) {
    BeginTrial(load, current_ == 0 ? TrialTree(load, tree) : 0, now);
    return trial_.nodes;
  }
  return current_ > 0 && steps_ % kLargerEvery == 0 ? Larger(load, current_) : current_;
}

}  // namespace arborist::verifier
