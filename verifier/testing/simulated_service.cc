#include "verifier/testing/simulated_service.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <utility>

namespace arborist::verifier::testing {
namespace {

const std::vector<int> kBounds = {1, 2, 4, 9, 17, 33, 65, 129, 257, 385, 512};

}  // namespace

double SimulatedWorld::Step(int rows, int trees) const {
  static const std::vector<double> at = {287e-6, 292e-6, 300e-6, 325e-6, 345e-6, 375e-6,
                                         430e-6, 540e-6, 760e-6, 950e-6, 1150e-6};
  const auto i = std::lower_bound(kBounds.begin(), kBounds.end(), std::min(rows, 512)) - kBounds.begin();
  return at[i] + 20e-6 + 2.5e-6 * trees;
}

double SimulatedWorld::Accepted(int node, int position, double text) const {
  const double age = std::min(1.0, static_cast<double>(position) / grown);
  return node <= 7 ? std::pow((falling + varied * text) * (young + (1 - young) * age), node) : beside;
}

SimulatedService::SimulatedService(const SimulatedWorld& world, int seed)
    : world_(world), budgets_(kBounds, 512), random_(seed) {
  for (const int bound : {1, 9, 33, 129, 512}) {
    budgets_.costs().SetAtStart(bound, world.Step(bound, 1) - 20e-6);
  }
}

double SimulatedService::Batch(ServiceMode mode, int sequences, int tokens) {
  mode_ = mode;
  rate_ = 0;
  ones_.clear();
  for (int i = 0; i < sequences; ++i) {
    auto one = std::make_unique<One>();
    ones_.push_back(std::move(one));
    Begin(*ones_.back(), tokens, i * 15e-6);
  }
  RunAll();
  return rate_;
}

double SimulatedService::Loop(ServiceMode mode, int clients, double seconds, double uncounted) {
  mode_ = mode;
  ones_.clear();
  const double begin = now_ + uncounted;
  until_ = begin + seconds;
  After(uncounted, [this] { tokens_ = 0; });
  for (int i = 0; i < clients; ++i) {
    ones_.push_back(std::make_unique<One>());
    Begin(*ones_.back(), static_cast<int>(Uniform(128, 257)), Uniform(0, 100e-3));
  }
  RunAll();
  until_ = 0;
  return static_cast<double>(tokens_) / (now_ - begin);
}

void SimulatedService::Change(const SimulatedWorld& world, double seconds) {
  After(seconds, [this, world] { world_ = world; });
}

void SimulatedService::Begin(One& one, int tokens, double wait) {
  one = One();
  one.tokens = one.left = tokens;
  one.begun = now_;
  one.sequence.output_limit = tokens;
  one.text = world_.varied > 0 ? Uniform(-1, 1) : 0;
  one.sequence.phase = Phase::kPrefill;
  one.sequence.follows_budget = one.sequence.args.automatic = mode_ == ServiceMode::kAuto;
  one.sequence.args.sampling.temperature = static_cast<float>(world_.temperature);
  one.sequence.args.tree_nodes = mode_ == ServiceMode::kOff ? 0 : mode_ == ServiceMode::kTree ? 8 : 16;
  one.sequence.args.projection_hash = mode_ == ServiceMode::kOff ? "" : "features";
  one.late = true;
  one.drafter = mode_ == ServiceMode::kTree || (mode_ == ServiceMode::kAuto && !ended_plainly_);
  After(Hop() * (one.drafter ? 4 : 2) + wait, [this, &one] {
    one.phase = One::kPrompt;
    Step();
  });
}

void SimulatedService::RunAll() {
  while (!events_.empty()) {
    const Event event = events_.top();
    events_.pop();
    now_ = event.at;
    event.what();
  }
}

double SimulatedService::Uniform(double low, double high) {
  return std::uniform_real_distribution<>(low, high)(random_);
}

double SimulatedService::Hop() {
  const auto here = static_cast<double>(ones_.size());
  const double hiccup = Uniform(0, 1) < 0.002 ? 1.5e-3 : 0;
  return world_.hop * Uniform(0.8, 1.4) + world_.hop_sequence * here * Uniform(0, 2) + hiccup;
}

void SimulatedService::After(double seconds, std::function<void()> what) {
  events_.push({now_ + seconds, order_++, std::move(what)});
}

SimulatedService::Clock::time_point SimulatedService::At(double seconds) const {
  return Clock::time_point(
      std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds + 1000)));
}

double SimulatedService::Turn(Owner owner, double seconds) {
  const bool both = owner == kVerifiers ? device_busy_ : busy_;
  const bool other = std::exchange(last_, owner) != owner;
  return seconds * (both ? world_.beside_other : 1) + (other ? world_.turn : 0);
}

void SimulatedService::Step(std::vector<One*> read) {
  if (busy_) {
    return;
  }
  budgets_.BeginCount();
  in_step_.clear();
  prompts_.clear();
  int rows = 0;
  for (const auto& one : ones_) {
    if (one->phase == One::kComing || one->phase == One::kGone) {
      continue;
    }
    budgets_.Count(one->sequence);
    if (one->phase == One::kPrompt) {
      prompts_.push_back(one.get());
    } else if (one->phase == One::kWaiting && rows + one->sequence.round.tree.nodes() <= 512) {
      rows += one->sequence.round.tree.nodes();
      in_step_.push_back(one.get());
    }
  }
  budgets_.EndCount(At(now_));
  for (One* one : read) {
    Tell(*one, budgets_.First(one->sequence, At(now_)));
  }
  if (in_step_.empty() && prompts_.empty()) {
    return;
  }
  busy_ = true;
  const double begin = now_;
  const auto trees = static_cast<int>(in_step_.size());
  const double seconds = (trees > 0 ? world_.Step(rows, trees) : 300e-6) * Uniform(0.97, 1.05) +
                         (prompts_.empty() ? 0 : world_.prompt);
  After(Turn(kVerifiers, seconds), [this, begin, rows] { EndStep(begin, rows); });
}

void SimulatedService::EndStep(double begin, int rows) {
  const auto trees = static_cast<int>(in_step_.size());
  std::vector<std::vector<int32_t>> paths;
  for (One* one : in_step_) {
    std::vector<int32_t> path = {0};
    const double luck = Uniform(0, 1);
    for (int node = 1; node < one->sequence.round.tree.nodes(); ++node) {
      if ((node <= 7 ? luck : Uniform(0, 1)) < world_.Accepted(node, one->tokens - one->left, one->text)) {
        path.push_back(node);
      }
    }
    TreeOutcome outcome;
    outcome.path = path;
    budgets_.See(one->sequence, outcome, At(begin), trees);
    paths.push_back(path);
  }
  if (!prompts_.empty()) {
    budgets_.Excuse(rows, trees, At(begin), At(now_));
  }
  budgets_.Decide(At(now_));
  for (int i = 0; i < trees; ++i) {
    Commit(*in_step_[i], static_cast<int>(paths[i].size()));
  }
  if (prompts_.empty()) {
    budgets_.SeeStep(rows, trees, At(begin), At(now_));
  } else {
    budgets_.SeePrompt(At(now_));
  }
  for (One* one : prompts_) {
    one->phase = One::kDrafting;
    one->sequence.phase = Phase::kReady;
  }
  busy_ = false;
  Step(prompts_);
}

void SimulatedService::Commit(One& one, int tokens) {
  Round& round = one.sequence.round;
  const int next = budgets_.Next(one.sequence);
  one.sequence.told_at = At(now_);
  one.left -= tokens;
  one.sequence.output_limit = one.left;
  tokens_ += tokens;
  one.plain_tokens += round.decode_left > 0 ? tokens : 0;
  trees_ += round.decode_left == 0 ? 1 : 0;
  if (one.left <= 0) {
    one.phase = One::kGone;
    rate_ += one.tokens / (now_ + Hop() * (one.drafter ? 2 : 1) - one.begun);
    ended_plainly_ = mode_ == ServiceMode::kAuto ? 2 * one.plain_tokens > one.tokens : ended_plainly_;
    if (now_ < until_) {
      Begin(one, static_cast<int>(Uniform(128, 257)), Hop());
    }
  } else if (round.decode_left == 0 || (mode_ == ServiceMode::kAuto && next > 0)) {
    one.late = one.late || round.decode_left > 0;
    Tell(one, next);
  }
}

void SimulatedService::Tell(One& one, int budget) {
  one.phase = One::kDrafting;
  if (mode_ == ServiceMode::kOff || budget == 0) {
    After(2 * Hop(), [this, &one] { Arrive(one, 0, 1 << 20); });
    return;
  }
  const int hops = std::exchange(one.drafter, true) ? 1 : 4;  // to be taken over
  After(hops * Hop(), [this, &one, budget] {
    one.sequence.told_budget = budget;
    one.queued = now_;
    if (one.late) {
      one.late = false;
      catching_up_.push_back(&one);
    } else {
      drafts_.push_back(&one);
      one.last_draft = now_;
    }
    Device();
  });
}

void SimulatedService::Device() {
  if (device_busy_) {
    return;
  }
  if (!catching_up_.empty()) {
    One* one = catching_up_.front();
    catching_up_.pop_front();
    device_busy_ = true;
    After(Turn(kDrafters, world_.catch_up), [this, one] {
      device_busy_ = false;
      one->queued = one->last_draft = now_;
      drafts_.push_back(one);
      Device();
    });
    return;
  }
  if (drafts_.empty()) {
    return;
  }
  const auto drafting = std::count_if(ones_.begin(), ones_.end(), [&](const auto& one) {
    return one->phase != One::kGone && one->last_draft > now_ - 20e-3;
  });
  const double ready = drafts_.front()->queued + 150e-6;
  if (2 * static_cast<int64_t>(drafts_.size()) < drafting && now_ < ready - 1e-9) {
    After(ready - now_, [this] { Device(); });
    return;
  }
  device_busy_ = true;
  const std::vector<One*> together(drafts_.begin(), drafts_.end());
  drafts_.clear();
  const double seconds = world_.draft + world_.draft_stream * static_cast<double>(together.size());
  After(Turn(kDrafters, seconds), [this, together] {
    device_busy_ = false;
    for (One* one : together) {
      After(Hop(), [this, one] { Arrive(*one, one->sequence.told_budget, 0); });
    }
    Device();
  });
}

void SimulatedService::Arrive(One& one, int nodes, int decode_left) {
  Round& round = one.sequence.round;
  round.tree = TokenTree::RootOnly(TokenId{});
  for (int node = 1; node <= nodes; ++node) {
    round.tree.token.push_back(TokenId{});
    round.tree.parent.push_back(0);
    round.tree.score.push_back(
        static_cast<float>(std::log(world_.Accepted(node, one.tokens - one.left, one.text))));
  }
  round.decode_left = decode_left;
  round.submitted = At(now_);
  one.phase = One::kWaiting;
  Step();
}

}  // namespace arborist::verifier::testing
