// AUTO's budgets in a simulated service.
#include "verifier/sequence_budgets.h"

#include <gtest/gtest.h>

#include <vector>

#include "verifier/testing/simulated_service.h"

namespace arborist::verifier {
namespace {

using testing::ServiceMode;
using testing::SimulatedService;
using testing::SimulatedWorld;

struct Rates {
  double off = 0, tree = 0, automatic = 0;
  int64_t automatic_trees = 0;
};

const std::vector<ServiceMode> kModes = {ServiceMode::kOff, ServiceMode::kAuto, ServiceMode::kTree};

// By turns, as a benchmark does it; between two batches nobody is here. The first turn is not counted.
Rates Alternate(SimulatedService& service, int sequences, int alternations, double idle = 0.05,
                const std::vector<ServiceMode>& modes = kModes, int tokens = 256) {
  Rates rates;
  for (int i = -1; i < alternations; ++i) {
    for (const ServiceMode mode : modes) {
      const int64_t trees = service.trees();
      const double rate = service.Batch(mode, sequences, tokens) / alternations;
      service.Idle(idle);
      if (i >= 0) {
        (mode == ServiceMode::kOff    ? rates.off
         : mode == ServiceMode::kTree ? rates.tree
                                      : rates.automatic) += rate;
        rates.automatic_trees += mode == ServiceMode::kAuto ? service.trees() - trees : 0;
      }
    }
  }
  return rates;
}

const SimulatedWorld kTreesPay = {};
const SimulatedWorld kBeginningsAreHard = {.falling = 0.965, .young = 0.5, .grown = 60};
const SimulatedWorld kTreesDoNotPay = {.temperature = 1, .falling = 0.5};

TEST(SequenceBudgetsTest, KeepsToTreesWhereTheyPayWithManySequencesToo) {
  SimulatedService service(kTreesPay);
  for (const int sequences : {8, 32, 1}) {
    const Rates rates = Alternate(service, sequences, 12);
    EXPECT_GT(rates.tree, 1.2 * rates.off);
    EXPECT_GT(rates.automatic, 0.92 * rates.tree) << sequences;
  }
}

// All texts begin at once, where trees lose; what they give in all is known after the first batch.
TEST(SequenceBudgetsTest, HardBeginningsOfTextsDoNotHideThatTreesPay) {
  for (const int sequences : {1, 8, 32}) {
    SimulatedService service(kBeginningsAreHard);
    const Rates rates = Alternate(service, sequences, 12);
    EXPECT_GT(rates.tree, 1.2 * rates.off);
    EXPECT_GT(rates.automatic, 0.92 * rates.tree) << sequences;
  }
}

// In the middle of texts trees pay; drafters that catch up with prompts keep all from their first steps for
// longer than that wins back in short texts, and not in long ones.
TEST(SequenceBudgetsTest, BeginningsThatCostMoreThanTextsWinEndTreesAndOthersDoNot) {
  for (const double catch_up : {2e-3, 4e-3}) {
    const SimulatedWorld world = {.catch_up = catch_up};
    SimulatedService with_short(world);
    Alternate(with_short, 32, 20);
    const Rates of_short = Alternate(with_short, 32, 30);
    EXPECT_LT(of_short.tree, 0.95 * of_short.off) << catch_up;
    EXPECT_GT(of_short.automatic, 0.98 * of_short.off) << catch_up;
    SimulatedService with_long(world);
    const Rates of_long = Alternate(with_long, 32, 6, 0.05, kModes, 2048);
    EXPECT_GT(of_long.tree, 1.05 * of_long.off) << catch_up;
    EXPECT_GT(of_long.automatic, 0.92 * of_long.tree) << catch_up;
  }
}

// What eight sequences showed is no reason against trees of one.
TEST(SequenceBudgetsTest, TreesOfOneSequenceAreFoundWhereThoseOfEightLose) {
  SimulatedService service({.draft_stream = 400e-6});
  const Rates eight = Alternate(service, 8, 12);
  EXPECT_LT(eight.tree, eight.off);
  const Rates one = Alternate(service, 1, 12);
  EXPECT_GT(one.tree, 1.2 * one.off);
  EXPECT_GT(one.automatic, 0.9 * one.tree);
}

TEST(SequenceBudgetsTest, TrialsOfWhatDoesNotPayCostLessThanOnePercent) {
  SimulatedService service(kTreesDoNotPay);
  for (const int sequences : {8, 32, 1}) {
    const Rates rates = Alternate(service, sequences, 20);
    EXPECT_LT(rates.tree, 0.9 * rates.off) << sequences;
    EXPECT_GT(rates.automatic, 0.99 * rates.off) << sequences;
  }
}

// Else trials would be most of what rare requests do.
TEST(SequenceBudgetsTest, TimeWithoutSequencesBringsNoTrials) {
  SimulatedService busy(kTreesDoNotPay);
  SimulatedService rare(kTreesDoNotPay);
  const Rates often = Alternate(busy, 8, 20, /*idle=*/0);
  const Rates seldom = Alternate(rare, 8, 20, /*idle=*/60);
  EXPECT_LE(seldom.automatic_trees, often.automatic_trees + 32);
  EXPECT_GT(seldom.automatic, 0.99 * seldom.off);
}

// Steps and drafts that meet cost both more, so trees of one sequence pay and those of many do not, or
// hardly. One sequence was there before many, so costs of few are known.
TEST(SequenceBudgetsTest, IsNowhereBelowPlainDecodingWhereStepsAndDraftsTakeTurns) {
  const std::vector<SimulatedWorld> worlds = {
      {.turn = 140e-6, .beside_other = 2.2},
      {.draft_stream = 40e-6, .turn = 140e-6, .beside_other = 1.35},
      {.falling = 0.93, .draft_stream = 60e-6, .turn = 140e-6, .beside_other = 1.7},
      {.draft_stream = 100e-6, .turn = 140e-6, .beside_other = 2},
  };
  for (const SimulatedWorld& world : worlds) {
    for (const int seed : {11, 12, 13}) {
      SimulatedService service(world, seed);
      for (const int sequences : {8, 1, 32}) {
        const Rates rates = Alternate(service, sequences, 20, 0.05, {ServiceMode::kOff, ServiceMode::kAuto});
        EXPECT_GT(rates.automatic, (sequences == 1 ? 1.4 : 0.98) * rates.off)
            << sequences << " sequences, world " << &world - worlds.data() << ", seed " << seed;
      }
    }
  }
}

// Clients whose number is always near a power of two, one or two of them between their requests.
TEST(SequenceBudgetsTest, FindsTreesWhereRequestsComeAndGo) {
  for (const int clients : {2, 3, 5, 9, 17, 33}) {
    SimulatedService service(kTreesDoNotPay);
    SimulatedWorld world = kTreesPay;
    world.temperature = kTreesDoNotPay.temperature;
    service.Change(world, /*seconds=*/5);
    const double automatic = service.Loop(ServiceMode::kAuto, clients, /*seconds=*/5, /*uncounted=*/25);
    const double off = service.Loop(ServiceMode::kOff, clients, 5, 0);
    const double tree = service.Loop(ServiceMode::kTree, clients, 5, 0);
    EXPECT_GT(tree, 1.2 * off) << clients;
    EXPECT_GT(automatic, 0.92 * tree) << clients;
  }
}

TEST(SequenceBudgetsTest, IsNotBelowPlainDecodingWhereRequestsComeAndGo) {
  for (const int clients : {1, 3, 8, 33}) {
    SimulatedService service(kTreesDoNotPay);
    const double automatic = service.Loop(ServiceMode::kAuto, clients, 10, 5);
    EXPECT_GT(automatic, 0.98 * service.Loop(ServiceMode::kOff, clients, 10, 1)) << clients;
  }
}

// A step with prompt rows is excused before the decision after it.
TEST(SequenceBudgetsTest, LongPromptsDoNotEndTrees) {
  SimulatedWorld world = kTreesPay;
  world.prompt = 40e-3;
  SimulatedService service(world);
  const double automatic = service.Loop(ServiceMode::kAuto, 8, 20, 10);
  EXPECT_GT(automatic, 0.95 * service.Loop(ServiceMode::kTree, 8, 20, 1));
}

// Trees of some texts give much, of others less than plain decoding: what some won pays for trying others.
TEST(SequenceBudgetsTest, TextsThatDifferAreNoReasonToStayInPlainDecoding) {
  constexpr int kServices = 40;
  double gain = 0;
  for (int seed = 0; seed < kServices; ++seed) {
    SimulatedService service({.falling = 0.62, .varied = 0.25}, seed);
    const Rates rates = Alternate(service, 1, 20, 0.05, {ServiceMode::kOff, ServiceMode::kAuto});
    EXPECT_GT(rates.automatic, 0.98 * rates.off) << seed;
    gain += rates.automatic / rates.off - 1;
  }
  EXPECT_GT(gain / kServices, 0.09);
}

}  // namespace
}  // namespace arborist::verifier
