#include "verifier/budget_policy.h"

#include <algorithm>
#include <cmath>

namespace arborist::verifier {
namespace {

constexpr double kSlowest = 1.0 / 16;
constexpr double kOutlier = 4;
// What another choice must promise over the present one: less than the promise of never losing 2 %.
constexpr double kAhead = 1.01;
// A first tree, while nothing is known.
constexpr int kFirstNodes = 16;
// Of a trial, for each sequence: the first round only catches up.
constexpr int kTrialRounds = 2;
constexpr int kTrialTokens = 4;
// A trial that cost x seconds is followed by 200 x without one.
constexpr double kTrialSpacing = 200;
constexpr double kHopelessSpacing = 2000;
constexpr int kLeastStepsBetween = 64;
// One step in so many asks for a larger tree than pays, where none that large was seen or it pays nearly.
constexpr int kLargerEvery = 64;
constexpr double kNearly = 0.7;

}  // namespace

void BudgetPolicy::SeeTree(const TreeSeen& tree) {
  accept_.See(tree.asked, tree.score, tree.path);
  Away& away = away_[std::min(DoublingGroup(sequences_), kGroups - 1)];
  if (!tree.first_after_plain) {
    const double sample =
        away.count > 0 ? std::min(tree.away_seconds, kOutlier * away.seconds + 1e-5) : tree.away_seconds;
    MoveMean(sample, kSlowest, away.seconds, away.count);
    away.rounds = std::min(away.rounds + 1, 1 << 20);
    MoveMean(tree.trees, kSlowest, away.trees, away.trees_count);
  }
  if (trial_.active) {
    // What is expected, not what came: luck must not bring the next trial sooner.
    trial_.tokens += accept_.Tokens(static_cast<int>(tree.score.size()) - 1);
    trial_.rounds_left -= trial_.nodes > 0 ? 1 : 0;
  }
}

// A few rounds of each sequence: the first ones of a crowd are not like the rest.
bool BudgetPolicy::Known(int group) const { return away_[group].rounds >= std::max(8, 2 << group); }

// Of nearly as many sequences, if so many never drafted: rather fewer, which is too good and so gets tried.
BudgetPolicy::Away BudgetPolicy::AwayOf(int sequences) const {
  const int group = std::min(DoublingGroup(sequences), kGroups - 1);
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
  const double round = std::max(away.seconds + step, step * load.sequences / trees);
  return load.sequences * accept_.Tokens(nodes) / round + load.other_tokens / step;
}

bool BudgetPolicy::Fits(const BudgetLoad& load, int nodes) const {
  const int trees = TreesTogether(AwayOf(load.sequences), load);
  return nodes >= 1 && nodes <= load.most_nodes && trees * (nodes + 1) + load.other_rows <= load.most_rows;
}

// Every other trial is of a wide tree: what is known of trees may be of other times, and a small one tells
// nothing of the larger.
int BudgetPolicy::TrialTree(const BudgetLoad& load, int best) const {
  int wide = std::min(kFirstNodes, load.most_nodes);
  while (wide > best && !Fits(load, wide)) {
    --wide;
  }
  return trials_ % 2 == 0 ? best : std::max(best, wide);
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
  const int rounds = nodes > 0 ? kTrialRounds : kTrialTokens;
  trial_ = {.active = true,
            .nodes = nodes,
            .rounds_left = rounds * load.sequences,
            .begun = now,
            .deadline = now + 64 * load.sequences / rate + 10 * rounds * load.sequences / Rate(load, nodes),
            .tokens = 0,
            .usual_rate = rate,
            .hopeless = Rate(load, nodes) < kNearly * rate && nodes == 0};
  seen_plain_ = 0;
  ++trials_;
  if (nodes > 0) {
    Away& away = away_[std::min(DoublingGroup(load.sequences), kGroups - 1)];
    away.count = std::min(away.count, 2);
    away.trees_count = std::min(away.trees_count, 2);
    accept_.Doubt();
  }
}

void BudgetPolicy::EndTrial(double now) {
  const double lost = now - trial_.begun - trial_.tokens / trial_.usual_rate;
  const double spacing = trial_.hopeless ? kHopelessSpacing : kTrialSpacing;
  next_trial_ = now + std::max(spacing * lost, kLeastStepsBetween * sequences_ / trial_.usual_rate);
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
  sequences_ = load.sequences;
  if (trial_.active) {
    if (trial_.nodes == 0) {
      trial_.tokens += static_cast<double>(seen_plain_);
      trial_.rounds_left -= static_cast<int>(seen_plain_);
    }
    seen_plain_ = 0;
    if (trial_.rounds_left > 0 && now < trial_.deadline) {
      return std::min(trial_.nodes, load.most_nodes);
    }
    EndTrial(now);
  }
  if (!accept_.known()) {
    current_ = 0;
    BeginTrial(load, Standing(load), now);
    return trial_.nodes;
  }
  const int chosen = Choose(load);
  if ((chosen > 0) != (current_ > 0)) {
    next_trial_ = std::max(next_trial_, now + kLeastStepsBetween * load.sequences / Rate(load, chosen));
  }
  current_ = chosen;
  if (const int tree = BestTree(load); now >= next_trial_ && (current_ > 0 || tree > 0)) {
    BeginTrial(load, current_ == 0 ? TrialTree(load, tree) : 0, now);
    return trial_.nodes;
  }
  return current_ > 0 && steps_ % kLargerEvery == 0 ? Larger(load, current_) : current_;
}

}  // namespace arborist::verifier
