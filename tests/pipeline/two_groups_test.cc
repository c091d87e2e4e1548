// Do many sequences fall into groups that keep both sides busy? A simulation of the two services' queues with
// their own decisions, PlanStep and GatherRule, and costs as measured on one H200.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <queue>
#include <random>
#include <vector>

#include "drafter/gather_rule.h"
#include "verifier/scheduler.h"

namespace arborist {
namespace {

// Microseconds.
struct Costs {
  // Of a step by rows, and of a round by sequences: the sizes that are recorded.
  std::map<int, double> step = {{9, 583},   {17, 685},   {33, 873},  {65, 946},
                                {129, 998}, {256, 1079}, {512, 1300}};
  std::map<int, double> round = {{1, 176}, {2, 192}, {4, 230}, {8, 268}, {16, 296}, {32, 324}};
  double scale = 1;  // of steps: faster kernels
  double wire = 60;  // of a message, with the threads that it wakes
  double host = 8;   // of each message at the side that sends it
  double launch = 30;
};

class Simulation {
 public:
  Simulation(int sequences, int nodes, const Costs& costs)
      : sequences_(sequences), nodes_(nodes), costs_(costs) {
    for (int i = 0; i < sequences; ++i) {
      At(Noise() * 2000, [this] { Arrive(waiting_requests_); });
    }
  }

  void Run(double until) {
    while (!events_.empty() && events_.top().time < until) {
      const Event event = events_.top();
      events_.pop();
      now_ = event.time;
      event.action();
    }
  }

  // Share of [begin, end) in which neither side's device work runs.
  double IdleShare(double begin, double end) const {
    std::vector<std::pair<double, double>> work = work_;
    std::sort(work.begin(), work.end());
    double busy = 0, covered = begin;
    for (const auto& [from, to] : work) {
      busy += std::max(0.0, std::min(to, end) - std::max(from, covered));
      covered = std::clamp(to, covered, end);
    }
    return 1 - busy / (end - begin);
  }
  const std::vector<int>& steps() const { return steps_; }
  double rounds_per_millisecond() const { return 1000 * static_cast<double>(rounds_) / now_; }

 private:
  struct Event {
    double time;
    int64_t order;
    std::function<void()> action;
    bool operator<(const Event& other) const {
      return std::pair(time, order) > std::pair(other.time, other.order);
    }
  };

  void At(double time, std::function<void()> action) { events_.push({time, order_++, std::move(action)}); }
  double Noise() { return std::uniform_real_distribution<double>()(random_); }

  void Arrive(std::vector<double>& waiting) {
    waiting.push_back(now_);
    LookAtDrafter();
    LookAtVerifier();
  }

  void LookAtDrafter() {
    if (drafting_ || waiting_requests_.empty()) {
      return;
    }
    const drafter::GatherRule rule{.patience = std::chrono::microseconds(300)};
    const double waited = now_ - waiting_requests_.front();
    const int waiting = static_cast<int>(waiting_requests_.size());
    if (!rule.Starts(waiting, sequences_, 32,
                     std::chrono::nanoseconds(static_cast<int64_t>(1000 * waited + 1)))) {
      At(waiting_requests_.front() + 300, [this] { LookAtDrafter(); });
      return;
    }
    const int count = std::min(waiting, 32);
    waiting_requests_.erase(waiting_requests_.begin(), waiting_requests_.begin() + count);
    drafting_ = true;
    const double begin = now_ + costs_.launch, end = begin + costs_.round.lower_bound(count)->second;
    work_.emplace_back(begin, end);
    At(end, [this, count] {
      drafting_ = false;
      Send(count, waiting_trees_);
      LookAtDrafter();
    });
  }

  void LookAtVerifier() {
    if (verifying_ || waiting_trees_.empty()) {
      return;
    }
    const std::vector<verifier::WaitingTree> trees(waiting_trees_.size(), {.rows = nodes_ + 1});
    verifier::PlanStep({.max_rows = 1024, .max_logits_rows = 512, .max_tree_rows = 256, .prefill_chunk = 512},
                       trees, {}, plan_);
    const int count = static_cast<int>(plan_.trees.size());
    waiting_trees_.erase(waiting_trees_.begin(), waiting_trees_.begin() + count);
    verifying_ = true;
    const double begin = now_ + costs_.launch;
    const double end = begin + costs_.scale * costs_.step.lower_bound(count * (nodes_ + 1))->second;
    work_.emplace_back(begin, end);
    steps_.push_back(count);
    At(end, [this, count] {
      rounds_ += count;
      verifying_ = false;
      Send(count, waiting_requests_);  // while the next step runs
      LookAtVerifier();
    });
  }

  void Send(int count, std::vector<double>& to) {
    for (int i = 0; i < count; ++i) {
      At(now_ + costs_.wire * (1 + 0.3 * Noise()) + i * costs_.host, [this, &to] { Arrive(to); });
    }
  }

  const int sequences_;
  const int nodes_;
  const Costs costs_;
  std::mt19937 random_{7};
  std::priority_queue<Event> events_;
  int64_t order_ = 0;
  double now_ = 0;
  std::vector<double> waiting_requests_, waiting_trees_;  // when they came
  bool drafting_ = false, verifying_ = false;
  verifier::StepPlan plan_;
  std::vector<std::pair<double, double>> work_;
  std::vector<int> steps_;
  int64_t rounds_ = 0;
};

TEST(TwoGroupsTest, ManySequencesKeepTheDeviceBusyInFewGroups) {
  for (const double scale : {1.0, 0.6}) {
    for (const int nodes : {8, 15}) {
      Simulation simulation(32, nodes, {.scale = scale});
      simulation.Run(400'000);
      const double idle = simulation.IdleShare(100'000, 400'000);
      const std::vector<int>& steps = simulation.steps();
      const double late_steps = static_cast<double>(std::min<size_t>(steps.size(), 100));
      double sequences = 0;
      for (size_t i = steps.size() - static_cast<size_t>(late_steps); i < steps.size(); ++i) {
        sequences += steps[i];
      }
      EXPECT_LT(idle, 0.10) << nodes << " nodes, steps scaled by " << scale;
      // Neither one group in step with itself, nor crumbs.
      EXPECT_GT(sequences / late_steps, 32 / 4.0);
      EXPECT_LT(sequences / late_steps, 32 / 1.5);
      std::printf("%d nodes, steps x %.1f: idle %.1f %%, %.1f sequences a step, %.1f rounds/ms\n", nodes,
                  scale, 100 * idle, sequences / late_steps, simulation.rounds_per_millisecond());
    }
  }
}

TEST(TwoGroupsTest, OneSequenceGoesToAndFro) {
  Simulation simulation(1, 16, {});
  simulation.Run(100'000);
  EXPECT_TRUE(
      std::all_of(simulation.steps().begin(), simulation.steps().end(), [](int n) { return n == 1; }));
}

}  // namespace
}  // namespace arborist
