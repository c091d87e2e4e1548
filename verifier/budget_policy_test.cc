// The policy against simulated verifiers and drafters, whose truth it has to find out.
#include "verifier/budget_policy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <random>
#include <string>
#include <vector>

namespace arborist::verifier {
namespace {

const std::vector<int> kBounds = {1, 2, 4, 9, 17, 33, 65, 129, 256, 512};

// How things are: seconds, and how often the k-th best node is accepted.
struct World {
  std::string name;
  int sequences = 1;
  double step_base = 500e-6;
  double step_row = 10e-6;
  double away = 500e-6;      // draft and wire
  double away_sequence = 0;  // more for each sequence that drafts
  double first_node = 0.9;   // probability of node 1
  double falling = 0.75;     // of node k + 1 over node k
  double promised = 1;       // what scores say over what is true
  int most_nodes = 64;
  double prompts = 0;  // of others: as much longer takes a step of 16 or so
  int reading = 0;     // of the sequences, their prompts: 5 ms of every step

  double Step(int rows) const {
    return step_base + step_row * *std::lower_bound(kBounds.begin(), kBounds.end(), std::min(rows, 512));
  }
  double Away() const { return away + away_sequence * sequences; }
  double Accepted(int node) const { return first_node * std::pow(falling, node - 1); }
  double Tokens(int nodes) const {
    double tokens = 1;
    for (int node = 1; node <= nodes; ++node) {
      tokens += Accepted(node);
    }
    return tokens;
  }
  double Rate(int nodes) const {
    const int rows = sequences * (nodes + 1);
    return nodes == 0   ? sequences / Step(sequences)
           : rows > 512 ? 0
                        : sequences * Tokens(nodes) / (Away() + Step(rows));
  }
  double Best() const {
    double best = 0;
    for (int nodes = 0; nodes <= most_nodes; ++nodes) {
      best = std::max(best, Rate(nodes));
    }
    return best;
  }
};

class Simulation {
 public:
  explicit Simulation(const World& world) : world_(world), costs_(kBounds), policy_(costs_) {
    // At start nobody else uses the device.
    const World alone = {.name = "", .step_base = 450e-6, .step_row = 5e-6};
    for (const int bound : {1, 9, 65, 256}) {
      costs_.SetAtStart(bound, alone.Step(bound));
    }
  }

  void Change(const World& world) { world_ = world; }
  BudgetPolicy& policy() { return policy_; }
  bool drafts() const { return budget_ > 0; }

  // While plain decoding is best: until the policy tries a tree.
  void RunUntilATrial() {
    const BudgetLoad load = {
        .sequences = world_.sequences, .most_nodes = world_.most_nodes, .most_rows = 512};
    while (policy_.Standing(load) == 0) {
      Step();
    }
  }
  // Nothing happens for so long while trees are awaited.
  void Hiccup(double seconds) { now_ += seconds; }
  // Of so many seconds, how many were of plain decoding.
  double PlainSeconds(double seconds) {
    double plain = 0;
    for (const double begin = now_; now_ < begin + seconds;) {
      const double before = now_;
      Step();
      plain += drafts() ? 0 : now_ - before;
    }
    return plain;
  }
  // All sequences end, and others come later.
  void Idle(double seconds) {
    policy_.Leave(now_);
    now_ += seconds;
    was_plain_ = true;
  }

  // Tokens a second over so much simulated time.
  double Run(double seconds) {
    const double begin = now_;
    double tokens = 0;
    while (now_ < begin + seconds) {
      tokens += Step();
    }
    return tokens / (now_ - begin);
  }

 private:
  double Noise() { return std::uniform_real_distribution<>(0.9, 1.1)(random_); }

  double Step() {
    const int nodes = budget_;
    const int ready = world_.sequences - world_.reading;
    const int rows = ready * (nodes + 1);
    const double away = nodes > 0 ? world_.Away() * Noise() * (was_plain_ ? 2 : 1) : 0;
    const double step = world_.Step(rows) * Noise();
    now_ += away + step + (nodes == 0 && !was_plain_ ? world_.away / 2 : 0);  // the Decode has its way too
    double tokens = 0;
    for (int i = 0; i < ready; ++i) {
      std::vector<float> score = {0};
      std::vector<int32_t> path = {0};
      for (int node = 1; node <= nodes; ++node) {
        score.push_back(static_cast<float>(std::log(std::min(1.0, world_.promised * world_.Accepted(node)))));
        if (std::uniform_real_distribution<>(0, 1)(random_) < world_.Accepted(node)) {
          path.push_back(node);
        }
      }
      tokens += static_cast<double>(path.size());
      if (nodes > 0) {
        policy_.SeeTree({.asked = nodes,
                         .score = score,
                         .path = path,
                         .away_seconds = away,
                         .disturbed = was_plain_,
                         .trees = ready});
      } else {
        policy_.SeePlain();
      }
    }
    if (world_.reading > 0) {
      now_ += 5e-3;
      policy_.Excuse(5e-3);
    } else {
      costs_.Observe(rows, ready, step);
    }
    if (world_.prompts > 0 && std::uniform_real_distribution<>(0, 1)(random_) < 1.0 / 16) {
      now_ += world_.prompts;
      policy_.Excuse(world_.prompts);
    }
    was_plain_ = nodes == 0;
    budget_ = policy_.Decide({.sequences = world_.sequences,
                              .reading = world_.reading,
                              .most_nodes = world_.most_nodes,
                              .most_rows = 512},
                             now_);
    return tokens;
  }

  World world_;
  CostCurve costs_;
  BudgetPolicy policy_;
  std::mt19937 random_{7};
  double now_ = 0;
  int budget_ = 0;
  bool was_plain_ = true;
};

const std::vector<World>& Worlds() {
  static const std::vector<World> worlds = {
      {.name = "small trees pay"},
      {.name = "large trees pay", .step_row = 0.5e-6, .falling = 0.95},
      {.name = "drafting is slow", .away = 5e-3},
      {.name = "nothing is accepted", .first_node = 0.05},
      {.name = "rows are dear", .step_row = 400e-6, .away = 100e-6, .falling = 0.5},
      {.name = "eight sequences", .sequences = 8},
      {.name = "eight, and the drafter takes turns", .sequences = 8, .away_sequence = 500e-6},
      {.name = "thirty-two", .sequences = 32, .step_row = 2e-6},
      {.name = "thirty-two, poor drafts", .sequences = 32, .first_node = 0.4, .falling = 0.5},
      {.name = "scores promise too much", .away = 900e-6, .first_node = 0.45, .falling = 0.6, .promised = 2},
      {.name = "scores promise too little", .promised = 0.3},
      {.name = "trees at par", .away = 1.9e-3, .first_node = 0.9, .falling = 0.75},
      {.name = "few nodes allowed", .most_nodes = 4},
  };
  return worlds;
}

TEST(BudgetPolicyTest, EndsWithinTwoPercentOfTheBestFixedChoice) {
  for (const World& world : Worlds()) {
    Simulation simulation(world);
    simulation.Run(10);  // finds out
    EXPECT_GT(simulation.Run(10), 0.98 * world.Best())
        << world.name << " best " << world.Best() << " off " << world.Rate(0);
  }
}

TEST(BudgetPolicyTest, IsNeverTwoPercentBelowPlainDecoding) {
  for (const World& world : Worlds()) {
    Simulation simulation(world);
    EXPECT_GT(simulation.Run(10), 0.98 * world.Rate(0)) << world.name << ", from the first round on";
    EXPECT_GT(simulation.Run(10), 0.98 * world.Rate(0)) << world.name;
  }
}

TEST(BudgetPolicyTest, GoesBackWhenConditionsChange) {
  for (const int first : {0, 3, 7}) {
    const World& before = Worlds()[first];
    for (const World& after : Worlds()) {
      Simulation simulation(before);
      simulation.Run(2);
      simulation.Change(after);
      simulation.Run(20);
      EXPECT_GT(simulation.Run(5), 0.97 * after.Best()) << before.name << ", then " << after.name;
    }
  }
}

TEST(BudgetPolicyTest, AnIdleHourAfterATrialIsNotItsCost) {
  Simulation simulation({.name = "drafting is slow", .away = 5e-3});
  simulation.Run(5);
  simulation.RunUntilATrial();
  simulation.Idle(3600);
  const World after = {.name = "small trees pay"};
  simulation.Change(after);
  simulation.Run(20);
  EXPECT_GT(simulation.Run(5), 0.97 * after.Best());
}

// Else trees that give a tenth more would be given up where prompts take a fifth of the time.
TEST(BudgetPolicyTest, OthersPromptsAreNoLossOfTrees) {
  const World world = {.name = "", .away = 1100e-6, .falling = 0.7, .prompts = 6e-3};
  Simulation simulation(world);
  simulation.Run(5);
  int trees = 0;
  for (int i = 0; i < 100; ++i) {
    simulation.Run(0.1);
    trees += simulation.drafts() ? 1 : 0;
  }
  EXPECT_GT(world.Best(), 1.05 * world.Rate(0));
  EXPECT_LT(world.Best(), 1.3 * world.Rate(0));
  EXPECT_GT(trees, 90);
}

// Text of other kinds of sequences, however much of it.
TEST(BudgetPolicyTest, LongPromptsOfOthersAreNoLossOfTreesEither) {
  for (const double prompts : {30e-3, 60e-3, 150e-3}) {
    Simulation simulation({.name = "", .prompts = prompts});
    simulation.Run(20);
    EXPECT_LT(simulation.PlainSeconds(20), 1) << prompts;
  }
}

TEST(BudgetPolicyTest, AHiccupEndsNoTrees) {
  for (const int sequences : {1, 8}) {
    for (const double seconds : {0.05, 0.3, 1.0}) {
      Simulation simulation({.name = "", .sequences = sequences, .step_row = 2e-6});
      simulation.Run(10);
      simulation.Hiccup(seconds);
      EXPECT_LT(simulation.PlainSeconds(20), 0.1) << sequences << " sequences, " << seconds;
      double plain = 0;
      for (int i = 0; i < 6; ++i) {
        simulation.Hiccup(seconds);
        plain += simulation.PlainSeconds(5);
      }
      EXPECT_LT(plain, 0.5) << sequences << " sequences, once in five seconds " << seconds;
    }
  }
}

// What most rounds win and one in twenty loses many times over is a loss.
TEST(BudgetPolicyTest, HiccupsAllTheTimeEndTrees) {
  for (const int sequences : {1, 8}) {
    Simulation simulation({.name = "", .sequences = sequences, .step_row = 2e-6});
    simulation.Run(30);
    double plain = 0;
    double all = 0;
    while (all < 200) {
      if (simulation.drafts()) {
        simulation.Hiccup(0.3);
        all += 0.3;
      }
      plain += simulation.PlainSeconds(0.02);
      all += 0.02;
    }
    EXPECT_GT(plain, 0.9 * all) << sequences;
  }
}

TEST(BudgetPolicyTest, SequencesThatReadTheirPromptsAreNoLossOfTrees) {
  for (const int reading : {4, 6, 7}) {
    World world = {.name = "", .sequences = 8, .step_row = 2e-6};
    Simulation simulation(world);
    simulation.Run(30);
    double plain = 0;
    for (int i = 0; i < 40; ++i) {
      world.reading = reading;
      simulation.Change(world);
      simulation.PlainSeconds(1);
      world.reading = 0;
      simulation.Change(world);
      plain += simulation.PlainSeconds(0.25);
    }
    EXPECT_LT(plain, 0.5) << reading;
  }
}

TEST(BudgetPolicyTest, FindsTreesAgainWhileTheNumberOfSequencesChanges) {
  for (const int few : {1, 2, 4, 8, 32}) {
    World world = {.name = "", .sequences = few, .step_row = 2e-6, .first_node = 0.05};
    Simulation simulation(world);
    const auto flip = [&](double seconds) {
      double plain = 0;
      for (double all = 0; all < seconds; all += 0.004) {
        world.sequences = world.sequences == few ? few + 1 : few;
        simulation.Change(world);
        plain += simulation.PlainSeconds(0.004);
      }
      return plain;
    };
    flip(5);
    world.first_node = 0.9;
    flip(20);
    EXPECT_LT(flip(10), 0.5) << few;
  }
}

TEST(BudgetPolicyTest, ASequenceThatMayNotDraftNeverDoes) {
  Simulation simulation({.name = "", .most_nodes = 0});
  simulation.Run(0.1);
  EXPECT_EQ(simulation.policy().Standing({.sequences = 1, .most_nodes = 0, .most_rows = 512}), 0);
}

TEST(BudgetPolicyTest, TheFirstTreeIsTriedBeforeAnythingIsKnown) {
  const CostCurve costs(kBounds);
  const BudgetPolicy policy(costs);
  EXPECT_EQ(policy.Standing({.sequences = 1, .most_nodes = 64, .most_rows = 512}), 16);
  EXPECT_EQ(policy.Standing({.sequences = 1, .most_nodes = 5, .most_rows = 512}), 5);
}

TEST(BudgetPolicyTest, TreesFillTheSizesOfSteps) {
  Simulation simulation({.name = "", .sequences = 8, .step_row = 8e-6});
  simulation.Run(2);
  const BudgetLoad load = {.sequences = 8, .most_nodes = 64, .most_rows = 512};
  const int nodes = simulation.policy().Standing(load);
  EXPECT_TRUE(std::find(kBounds.begin(), kBounds.end(), 8 * (nodes + 1) + 1) != kBounds.end()) << nodes;
}

TEST(BudgetPolicyTest, OthersThatDecodePlainlyCountForTheBatch) {
  CostCurve costs(kBounds);
  BudgetPolicy policy(costs);
  const World world = {.name = "", .step_base = 100e-6, .step_row = 50e-6};
  for (const int bound : kBounds) {
    costs.SetAtStart(bound, world.Step(bound));
  }
  for (int round = 0; round < 100; ++round) {
    policy.SeeTree({.asked = 1,
                    .score = std::vector<float>{0, -0.1f},
                    .path = std::vector<int32_t>{0, 1},
                    .away_seconds = 10e-6});
  }
  // Alone this one drafts; beside 128 rows of others a larger step costs them more than it gains.
  BudgetLoad load = {.sequences = 1, .most_nodes = 1, .most_rows = 512};
  EXPECT_EQ(policy.Standing(load), 1);
  load.other_rows = 128;
  load.other_tokens = 128;
  EXPECT_EQ(policy.Standing(load), 0);
}

}  // namespace
}  // namespace arborist::verifier
