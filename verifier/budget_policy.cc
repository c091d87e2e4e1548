#include "verifier/budget_policy.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace arborist::verifier {
namespace {

constexpr double kOutlier = 4;
// And so many steps of plain decoding more: drafters that catch up take that long.
constexpr double kLateSteps = 16;
// What comes later still, up to so many times as much, is no hiccup where drafters caught up.
constexpr double kCatchingUp = 3;
// What another choice must promise over the present one: less than the promise of never losing 2 %.
constexpr double kAhead = 1.01;
// A first tree, while nothing is known.
constexpr int kFirstNodes = 16;
// Of a trial, for each sequence, when no drafter has to catch up any more.
constexpr int kTrialRounds = AwayTimes::kRoundsEach;
constexpr int kTrialTokens = 4;
// Of the first trial of all, unless trees would lose with so many times the tokens.
constexpr int kFirstRounds = 64;
constexpr double kHope = 2;
// A decision takes some microseconds between two steps, a hundredth of a short one; plain decoding stays what
// it is for so many.
constexpr int kLookEvery = 16;
// So many decisions plain decoding goes on after there were more than twice as many sequences.
constexpr int kSettled = 16;
// Sequences that come and go disturb each other; where they always do, so many rounds of each are all like
// that.
constexpr int kAlwaysDisturbed = 16;
constexpr int kLeastStepsBetween = 64;
constexpr int kMostReturnRounds = 64;
// A stay in trees that has lost so many steps of plain decoding since it had won most is given up, whatever
// trees promise. So many that it won pay for what it loses later, for texts differ; what is left then is
// charged, but no more than so many trials of one token a round would take.
constexpr double kMostLostSteps = 64;
constexpr double kMostWonSteps = 64;
constexpr double kMostTrialsCharged = 64;
constexpr double kMostTextsLostSteps = 64;
// One step in so many asks for a larger tree than pays, if that pays nearly, and one for a smaller.
constexpr int kOtherwiseEvery = 64;
constexpr double kNearly = 0.7;

}  // namespace

void BudgetPolicy::SeeTree(const TreeSeen& tree) {
  accept_.See(tree.asked, tree.score, tree.path, load_.sequences);
  disturbed_ = tree.disturbed ? disturbed_ + 1 : 0;
  caught_up_ |= tree.disturbed;
  const bool counts = !tree.disturbed || disturbed_ > kAlwaysDisturbed * load_.sequences;
  if (counts) {
    const int rows = tree.trees * std::max<int>(1, static_cast<int>(tree.score.size()));
    away_.See(load_.sequences, tree.away_seconds, tree.waited_seconds, costs_.Seconds(rows, tree.trees),
              tree.trees);
  }
  // What is expected, not what came: luck must not bring the next trial sooner.
  tokens_ +=
      std::min(accept_.Tokens(static_cast<int>(tree.score.size()) - 1), static_cast<double>(tree.left));
  if (trial_.active) {
    const int rounds = trial_.nodes > 0 && counts ? 1 : 0;
    trial_.rounds += rounds;
    trial_.rounds_left -= rounds;
  }
}

int BudgetPolicy::TreesTogether(const AwayTimes::Mean& away, const BudgetLoad& load) {
  return std::clamp(static_cast<int>(std::lround(away.trees)), 1, load.sequences);
}

double BudgetPolicy::Rate(const BudgetLoad& load, int nodes) const {
  if (nodes == 0) {
    const double step = costs_.Seconds(load.sequences + load.other_rows, load.sequences + load.other_rows);
    return (load.sequences + load.other_tokens) / step;
  }
  const RoundTime round = Round(load, away_.Of(load.sequences), nodes);
  return load.sequences * accept_.Tokens(nodes) / round.seconds + load.other_tokens / round.step;
}

BudgetPolicy::RoundTime BudgetPolicy::Round(const BudgetLoad& load, const AwayTimes::Mean& away,
                                            int nodes) const {
  const int trees = TreesTogether(away, load);
  const double step = costs_.Seconds(trees * (nodes + 1) + load.other_rows, trees + load.other_rows);
  // Groups that take turns wait for each other's steps, however soon their trees come.
  return {.seconds = std::max(away.seconds + (1 + away.steps) * step, step * load.sequences / trees),
          .step = step};
}

bool BudgetPolicy::Fits(const BudgetLoad& load, int nodes) const {
  const int trees = TreesTogether(away_.Of(load.sequences), load);
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
  const int trees = TreesTogether(away_.Of(load.sequences), load);
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
  if (!accept_.known()) {
    return std::min(kFirstNodes, load.most_nodes);
  }
  return Unsettled(load) || Closed(load) ? 0 : Choose(load);
}

void BudgetPolicy::BeginTrial(const BudgetLoad& load, int nodes, double now) {
  const double rate = Rate(load, current_);
  BudgetLoad own = load;
  own.other_tokens = 0;
  const bool first = trials_ == 0;
  const int rounds = nodes == 0 ? kTrialTokens : first ? kFirstRounds : kTrialRounds;
  trial_ = {.active = true,
            .trees = nodes > 0,
            .nodes = nodes,
            .group = Group(load.sequences),
            .rounds_left = nodes > 0 && !first ? AwayTimes::RoundsToKnow(Group(load.sequences))
                                               : rounds * load.sequences,
            .first = first,
            .deadline = now + 64 * load.sequences / rate + 10 * rounds * load.sequences / Rate(load, nodes),
            .lost = 0,
            .usual_rate = Rate(own, current_),
            .hopeless = Rate(load, nodes) < kNearly * rate && nodes == 0};
  ++trials_;
  if (nodes > 0) {
    away_.Doubt(load.sequences);
    accept_.Doubt();
  }
}

bool BudgetPolicy::NothingNew(const BudgetLoad& load) const {
  return current_ == 0 && load.sequences == load_.sequences && load.other_rows == load_.other_rows &&
         steps_ % kLookEvery != 0;
}

// Plain decoding goes on where most others ended a moment ago: the rest may do so, too, before trees pay.
bool BudgetPolicy::Unsettled(const BudgetLoad& load) const {
  return current_ == 0 && !left_ && 2 * load.sequences < most_lately_;
}

// Sequences that are in trees may stay, for they pay nothing to get there.
bool BudgetPolicy::Closed(const BudgetLoad& load) const {
  return (current_ == 0 || left_) && pace_[Group(load.sequences)].closed();
}

// Whatever trees promise: they have not kept it.
bool BudgetPolicy::GivenUp(const BudgetLoad& load) const {
  const TrialPace& pace = pace_[Group(load.sequences)];
  return pace.in_trees() && pace.stay_lost() > kMostLostSteps * PlainStep(load);
}

// Of those that have read their prompts: what they do is compared with what they could do.
double BudgetPolicy::PlainStep(const BudgetLoad& load) const {
  return costs_.Seconds(load.ready() + load.other_rows, load.ready() + load.other_rows);
}

// Below zero if it was won. `rate` of what else they could do; of a few hiccups, only what was to be
// expected.
BudgetPolicy::Loss BudgetPolicy::Lost(double seconds, double tokens, double rate) {
  const int nodes = trial_.active ? trial_.nodes : current_;
  const AwayTimes::Mean& seen = away_.Seen(load_.sequences);
  const double expected = std::max(Round(load_, away_.Of(load_.sequences), nodes).seconds,
                                   seen.count > 0 ? Round(load_, seen, nodes).seconds : 0);
  const double usual = kOutlier * expected + kLateSteps * PlainStep(load_);
  const double beyond = std::max(0.0, seconds - usual);
  const double catching_up = caught_up_ ? std::min(beyond, kCatchingUp * usual) : 0;
  const double late = beyond - catching_up;
  return {.seconds = seconds - beyond + pace_[Group(load_.sequences)].Late(late) - tokens / rate,
          .catching_up = catching_up};
}

// What the time since the last decision lost, if it was a trial's or one in trees. The first trees of
// sequences that come where none was are waited for while drafters catch up with prompts: that says nothing
// of trees in the middle of texts, but whole texts must win it back.
void BudgetPolicy::Account(double now) {
  const double passed = now - std::exchange(decided_, now);
  const double seconds = passed - std::exchange(excused_, 0);
  const bool drafted = tokens_ > 0;
  const double tokens = std::exchange(tokens_, 0) + std::exchange(seen_plain_, 0);
  TrialPace& pace = pace_[Group(load_.sequences)];
  pace.Pass(passed);
  most_here_ = std::max(left_ ? 0 : most_here_, load_.sequences);
  if (trial_.active) {
    const double usual = trial_.usual_rate * load_.ready() / load_.sequences;
    const Loss lost = Lost(seconds, tokens, trial_.trees ? load_.ready() / PlainStep(load_) : usual);
    trial_.lost += lost.seconds + lost.catching_up;
  } else if (current_ > 0 && (drafted || !left_)) {
    const Loss lost = Lost(seconds, tokens, load_.ready() / PlainStep(load_));
    if (!left_) {
      pace.Stay(lost.seconds, kMostWonSteps * PlainStep(load_));
    }
    // The last of many win for themselves alone.
    const double part = static_cast<double>(load_.ready()) / most_here_;
    pace_[Group(most_here_)].StayOfTexts(part * (lost.seconds + lost.catching_up),
                                         kMostWonSteps * PlainStep(load_));
  }
  caught_up_ = false;
}

bool BudgetPolicy::TrialIsOver(const BudgetLoad& load, double now) const {
  if (trial_.rounds_left <= 0 || now >= trial_.deadline) {
    return true;
  }
  return trial_.first && !trial_.returns && trial_.rounds >= kTrialRounds * load.sequences &&
         kHope * Rate(load, trial_.nodes) < Rate(load, 0);
}

// False if the trial is over.
bool BudgetPolicy::GoOnTrying(const BudgetLoad& load, double now) {
  if (trial_.first && !trial_.returns && trial_.rounds >= kTrialRounds * load.sequences) {
    trial_.nodes = std::max(1, BestTree(load));  // the wide ones have told enough
  }
  if (!TrialIsOver(load, now)) {
    return true;
  }
  if (!trial_.returns) {
    if (const int chosen = Choose(load); (chosen > 0) != trial_.trees) {
      Return(load, chosen, now);
      return true;
    }
  }
  return false;
}

// What was tried does not pay. The way back is a part of what the trial costs: trees come late, drafters
// catch up.
void BudgetPolicy::Return(const BudgetLoad& load, int nodes, double now) {
  trial_.returns = true;
  trial_.nodes = nodes;
  trial_.rounds_left = (nodes == 0 ? kTrialTokens : 1) * load.sequences;
  trial_.deadline = now + kMostReturnRounds * load.sequences / Rate(load, nodes);
}

void BudgetPolicy::EndTrial() {
  TrialPace& pace = pace_[trial_.group];
  if (trial_.first && trial_.rounds > kTrialRounds * load_.sequences) {
    trial_.lost *= static_cast<double>(kTrialRounds) * load_.sequences / trial_.rounds;  // that much once
  }
  const double least = kLeastStepsBetween * load_.sequences / trial_.usual_rate;
  if (trial_.trees) {
    pace.EndTrialOfTrees(trial_.lost, trial_.returns, least);
  } else {
    pace.EndTrialOfPlain(trial_.lost, trial_.hopeless, least);
  }
  trial_.active = false;
}

void BudgetPolicy::Leave(double now) {
  if (trial_.active) {
    Account(now);
    EndTrial();
  }
  if (!std::exchange(left_, true)) {
    pace_[Group(most_here_)].EndTexts(kMostTextsLostSteps * PlainStep(load_));
  }
}

// Now and then: what such a tree gives and costs is known only while some come.
int BudgetPolicy::Otherwise(const BudgetLoad& load, int nodes) const {
  const int phase = static_cast<int>(steps_ % kOtherwiseEvery);
  const int other = phase == 0                     ? std::min(2 * nodes, load.most_nodes)
                    : phase == kOtherwiseEvery / 2 ? nodes / 2
                                                   : 0;
  return Fits(load, other) && Rate(load, other) > kNearly * Rate(load, nodes) ? other : nodes;
}

int BudgetPolicy::Decide(const BudgetLoad& load, double now) {
  if (load.most_nodes == 0) {
    return 0;
  }
  ++steps_;
  bool look = !NothingNew(load);
  if (left_ || load.sequences >= most_lately_ || ++since_most_ >= kSettled) {
    most_lately_ = load.sequences;
    since_most_ = 0;
  }
  load_ = load;
  if (trial_.active && trial_.nodes == 0) {
    trial_.rounds_left -= seen_plain_;
  }
  Account(now);
  const bool unsettled = Unsettled(load);
  const bool closed = Closed(load);
  left_ = false;
  bool tried = false;
  if (trial_.active) {
    if (GoOnTrying(load, now)) {
      return std::min(trial_.nodes, load.most_nodes);
    }
    tried = !trial_.returns;  // and won
    look = true;
    EndTrial();
  }
  const TrialPace& pace = pace_[Group(load.sequences)];
  if (!look && !pace.due()) {
    return 0;
  }
  if (trials_ == 0) {
    current_ = 0;
    BeginTrial(load, std::max(1, WideTree(load)), now);
    return trial_.nodes;
  }
  if (unsettled && !tried) {
    return 0;
  }
  Follow(load, (closed && !tried) || GivenUp(load) ? 0 : Choose(load), tried);
  if (const int tree = BestTree(load); pace.due() && (current_ > 0 || tree > 0)) {
    BeginTrial(load, current_ == 0 ? TrialTree(load, tree) : 0, now);
    return trial_.nodes;
  }
  return current_ > 0 ? Otherwise(load, current_) : 0;
}

// `tried`: after a trial that won.
void BudgetPolicy::Follow(const BudgetLoad& load, int chosen, bool tried) {
  TrialPace& pace = pace_[Group(load.sequences)];
  const double least = kLeastStepsBetween * load.sequences / Rate(load, chosen);
  if (chosen > 0 && !pace.in_trees()) {
    pace.EnterTrees(tried && trial_.trees ? trial_.lost : 0, least);
  } else if (chosen == 0 && pace.in_trees()) {
    pace.Stay(away_.Of(load.sequences).seconds, /*credit=*/least);  // the way of a Decode
    pace.LeaveTrees(kMostTrialsCharged * AwayTimes::RoundsToKnow(Group(load.sequences)) / Rate(load, 0),
                    least);
  } else if (!pace.known()) {
    pace.BeginPlainly(least);
  }
  current_ = chosen;
}

}  // namespace arborist::verifier
