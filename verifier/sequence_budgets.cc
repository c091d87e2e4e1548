#include "verifier/sequence_budgets.h"

#include <algorithm>
#include <utility>

namespace arborist::verifier {
namespace {

constexpr int kSamplings = static_cast<int>(kSamplingKinds.size());
constexpr std::chrono::seconds kReportInterval(1);

double Seconds(SequenceBudgets::Clock::duration duration) {
  return std::chrono::duration<double>(duration).count();
}

}  // namespace

SequenceBudgets::SequenceBudgets(std::vector<int> bounds, int most_rows)
    : costs_(std::move(bounds)), most_rows_(most_rows) {
  kinds_.reserve(kKinds);
  for (int i = 0; i < kKinds; ++i) {
    kinds_.push_back({.policy = BudgetPolicy(costs_), .load = {}});
  }
}

SamplingKind SequenceBudgets::SamplingOf(const Sequence& sequence) {
  const float temperature = sequence.args.sampling.temperature;
  return temperature == 0      ? SamplingKind::kGreedy
         : temperature <= 0.7f ? SamplingKind::kCool
                               : SamplingKind::kHot;
}

int SequenceBudgets::KindOf(const Sequence& sequence) {
  const bool features =
      !sequence.args.projection_hash.empty() || !sequence.args.drafter_projection_hash.empty();
  return static_cast<int>(SamplingOf(sequence)) + (features ? 0 : kSamplings);
}

void SequenceBudgets::BeginCount() {
  rows_ = 0;
  tokens_ = 0;
  for (Kind& kind : kinds_) {
    kind.load = {.sequences = 0, .most_rows = most_rows_};
    kind.tokens = 0;
    kind.rows = 0;
    kind.seen = false;
    kind.catching_up = false;
  }
}

void SequenceBudgets::Count(const Sequence& sequence) {
  const int rows = std::max(1, sequence.round.tree.nodes());
  Kind& kind = kinds_[KindOf(sequence)];
  const double tokens = rows > 1 ? kind.policy.Tokens(rows - 1) : 1;
  rows_ += rows;
  tokens_ += tokens;
  if (sequence.follows_budget) {
    ++kind.load.sequences;
    kind.load.reading += sequence.phase == Phase::kPrefill ? 1 : 0;
    kind.load.most_nodes = std::max(kind.load.most_nodes, sequence.args.tree_nodes);
    kind.rows += rows;
    kind.tokens += tokens;
    kind.catching_up |= sequence.told_budget > 0 && !sequence.told_after_tree;
  }
}

void SequenceBudgets::EndCount(Clock::time_point now) {
  for (Kind& kind : kinds_) {
    if (kind.here) {
      kind.clock += Seconds(now - counted_);
    }
    kind.here = kind.load.sequences > 0;
    if (!kind.here) {
      kind.policy.Leave(kind.clock);
    }
    if (kind.catching_up) {
      kind.caught_up = now;
    }
  }
  counted_ = now;
}

BudgetLoad SequenceBudgets::LoadOf(const Kind& kind) const {
  BudgetLoad load = kind.load;
  load.other_rows = rows_ - kind.rows;
  load.other_tokens = tokens_ - kind.tokens;
  return load;
}

void SequenceBudgets::See(const Sequence& sequence, const TreeOutcome& outcome, Clock::time_point step_begin,
                          int trees) {
  if (!sequence.follows_budget || !outcome.status.ok()) {
    return;
  }
  Kind& kind = kinds_[KindOf(sequence)];
  kind.seen = true;
  const Round& round = sequence.round;
  if (round.decode_left > 0) {
    kind.policy.SeePlain();
    return;
  }
  const int nodes = round.tree.nodes() - 1;
  kind.policy.SeeTree({.asked = round.cut_nodes > 0 ? nodes : std::max(nodes, sequence.told_budget),
                       .score = round.tree.score,
                       .path = outcome.path,
                       .away_seconds = Seconds(round.submitted - sequence.told_at),
                       .waited_seconds = Seconds(step_begin - round.submitted),
                       .disturbed = sequence.told_at < std::max(prompt_end_, kind.caught_up),
                       .trees = trees,
                       .left = sequence.output_limit - static_cast<int64_t>(sequence.tokens.size())});
}

void SequenceBudgets::Decide(Clock::time_point now) {
  for (Kind& kind : kinds_) {
    if (kind.seen && kind.load.sequences > 0) {
      kind.nodes = kind.policy.Decide(LoadOf(kind), kind.clock + Seconds(now - counted_));
    }
  }
}

void SequenceBudgets::Report(Clock::time_point now, const OnBudgetReport& report) {
  for (int i = 0; i < kKinds; ++i) {
    Kind& kind = kinds_[i];
    const bool drafts = kind.nodes > 0;
    const bool trial = kind.policy.trying();
    const bool changed = drafts != kind.reported_drafts || trial != kind.reported_trial;
    if (!kind.seen || kind.load.sequences == 0 || (!changed && now - kind.reported < kReportInterval)) {
      continue;
    }
    kind.reported = now;
    kind.reported_drafts = drafts;
    kind.reported_trial = trial;
    const BudgetLoad load = LoadOf(kind);
    const int tree = kind.policy.BestTree(load);
    const bool features = i < kSamplings;
    const double tree_rate = tree == 0 ? 0 : kind.policy.Rate(load, tree);
    report({.features = features,
            .sampling = kSamplingKinds[i % kSamplings],
            .sequences = load.sequences,
            .nodes = kind.nodes,
            .trial = trial,
            .trials = kind.policy.trials(),
            .plain_rate = kind.policy.Rate(load, 0),
            .tree_rate = tree_rate});
  }
}

void SequenceBudgets::SeeStep(int rows, int trees, Clock::time_point begin, Clock::time_point end) {
  costs_.Observe(rows, trees, Seconds(end - begin));
}

void SequenceBudgets::Excuse(int rows, int trees, Clock::time_point begin, Clock::time_point end) {
  const double expected = trees == 0 ? 0 : costs_.Seconds(rows, trees);
  for (Kind& kind : kinds_) {
    kind.policy.Excuse(kind.here ? std::max(0.0, Seconds(end - begin) - expected) : 0);
  }
}

int SequenceBudgets::Next(Sequence& sequence) const {
  const int most = sequence.args.tree_nodes;
  const Kind& kind = kinds_[KindOf(sequence)];
  sequence.told_budget = most;
  if (sequence.follows_budget) {
    sequence.told_budget = std::min(kind.nodes, most);
  } else if (sequence.args.automatic) {  // it decoded some tokens because it lacked context, and will follow
    sequence.told_budget = std::min(kind.policy.Standing(LoadOf(kind)), most);
  }
  sequence.told_after_tree = sequence.round.decode_left == 0;
  return sequence.told_budget;
}

int SequenceBudgets::First(Sequence& sequence, Clock::time_point now) const {
  sequence.told_at = now;
  const int most = sequence.args.tree_nodes;
  // Not follows_budget: an owner may send its first round already.
  if (sequence.args.automatic) {
    const Kind& kind = kinds_[KindOf(sequence)];
    sequence.told_budget = std::min(kind.policy.Standing(LoadOf(kind)), most);
  } else {
    sequence.told_budget = most;
  }
  return sequence.told_budget;
}

}  // namespace arborist::verifier
