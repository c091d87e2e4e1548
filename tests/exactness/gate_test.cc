// The full product on a random model. Its weights are drawn anew for every seed, so nobody can tune to it.
#include "tests/exactness/gate.h"

#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "gtest/gtest.h"
#include "tests/support/random_checkpoint.h"

namespace arborist::tests {
namespace {

constexpr GateDrafter kDrafters[] = {GateDrafter::kDFlash, GateDrafter::kNgram,   GateDrafter::kRandom,
                                     GateDrafter::kStale,  GateDrafter::kMaximal, GateDrafter::kMalformed,
                                     GateDrafter::kReplay};

// ARBORIST_GATE_SEED repeats a run; without it the day decides, so that a green week has tried seven models.
uint64_t Seed() {
  const char* text = std::getenv("ARBORIST_GATE_SEED");
  return text != nullptr ? std::strtoull(text, nullptr, 10)
                         : static_cast<uint64_t>(std::time(nullptr) / 86400);
}

class GateTest : public testing::Test {
 protected:
  void SetUp() override { MakeWorld(DeviceKind::kCpu); }

  void MakeWorld(DeviceKind device) {
    WriteRandomTarget(directory_.path() + "/target", Seed());
    WriteRandomDrafter(directory_.path() + "/drafter", Seed() + 1);
    absl::StatusOr<std::unique_ptr<GateWorld>> world =
        GateWorld::Create({.target = directory_.path() + "/target",
                           .drafter = directory_.path() + "/drafter",
                           .device = device,
                           .cut_seed = Seed()});
    ASSERT_TRUE(world.ok()) << world.status();
    world_ = *std::move(world);
  }

  // Every `stride`-th cell of the product; returns how many ran.
  int RunCells(int stride) {
    Gate gate(*world_, Seed());
    int number = 0;
    int ran = 0;
    GateResult replay_wide;
    for (const Situation situation : kSituations) {
      for (const GateDrafter drafter : kDrafters) {
        for (const GateSampling sampling : kSamplings) {
          for (const int budget : kBudgets) {
            if (number++ % stride != 0) {
              continue;
            }
            const CellReport report = gate.Run({sampling, budget, drafter, situation});
            EXPECT_EQ(report.failure, "");
            ++ran;
            if (drafter == GateDrafter::kReplay && budget >= 16 && situation == Situation::kAlone) {
              replay_wide.rounds += report.sum.rounds;
              replay_wide.off_spine_rounds += report.sum.off_spine_rounds;
              replay_wide.compacted_rounds += report.sum.compacted_rounds;
            }
          }
        }
      }
    }
    std::printf(
        "gate: %d cells equal plain decoding, seed %llu; replay at 16 nodes and more: %d rounds, %d off the "
        "spine, %d compacted\n",
        ran, static_cast<unsigned long long>(Seed()), replay_wide.rounds, replay_wide.off_spine_rounds,
        replay_wide.compacted_rounds);
    // Otherwise branching and compaction were not really tested.
    EXPECT_GE(replay_wide.off_spine_rounds * 10, replay_wide.rounds);
    EXPECT_GE(replay_wide.compacted_rounds * 10, replay_wide.rounds);
    EXPECT_GT(replay_wide.rounds, 0);
    return ran;
  }

  // Otherwise cells of a sampling would not test it.
  // Of the product of every control, alone and all together, with what can differ between its cells, every
  // `stride`-th.
  int RunControlledCells(int stride) {
    Gate gate(*world_, Seed());
    int number = 0;
    int ran = 0;
    for (int control = 0; control < static_cast<int>(gate.controls().size()); ++control) {
      for (const Situation situation : kSituations) {
        for (const GateDrafter drafter : {GateDrafter::kNgram, GateDrafter::kReplay}) {
          for (const GateSampling sampling : {GateSampling::kGreedy, GateSampling::kTopP}) {
            for (const int budget : kBudgets) {
              if (number++ % stride == 0) {
                EXPECT_EQ(gate.Run({sampling, budget, drafter, situation, control}).failure, "");
                ++ran;
              }
            }
          }
        }
      }
    }
    std::printf("gate: %d controlled cells equal plain decoding, seed %llu\n", ran,
                static_cast<unsigned long long>(Seed()));
    return ran;
  }

  // Otherwise no control was really tested.
  void ExpectTextDependsOnControls() {
    Gate gate(*world_, Seed());
    for (int control = 0; control < static_cast<int>(gate.controls().size()); ++control) {
      const std::string& name = gate.controls()[control].name;
      const int changed = gate.ControlledTexts(GateSampling::kTopP, control, 4);
      EXPECT_EQ(changed > 0, !name.starts_with("Tell")) << name;
    }
  }

  void ExpectTextDependsOnSampling() {
    Gate gate(*world_, Seed());
    for (const GateSampling sampling : kSamplings) {
      const bool greedy = sampling == GateSampling::kGreedy;
      EXPECT_EQ(gate.DistinctTexts(sampling, 8), greedy ? 1 : 8);
    }
    for (const GateSampling sampling : {GateSampling::kTopP, GateSampling::kTopK, GateSampling::kMinP}) {
      EXPECT_GT(gate.TruncatedTexts(sampling, 4), 0);
    }
  }

  TemporaryDirectory directory_;
  std::unique_ptr<GateWorld> world_;
};

TEST_F(GateTest, ASampleOfCellsWritesWhatPlainDecodingWrites) { EXPECT_GT(RunCells(11), 100); }

TEST_F(GateTest, TextDependsOnSeedsAndOnEveryTruncation) { ExpectTextDependsOnSampling(); }

// A stride that takes all budgets, drafters and situations in turn.
TEST_F(GateTest, ASampleOfControlledCellsWritesWhatPlainDecodingWrites) {
  EXPECT_GT(RunControlledCells(17), 150);
}

TEST_F(GateTest, TextDependsOnEveryControl) { ExpectTextDependsOnControls(); }

TEST_F(GateTest, FullProductOfControlsWritesWhatPlainDecodingWrites) {
  EXPECT_GT(RunControlledCells(1), 2000);
}

// Registered in the full tier alone, by its name.
TEST_F(GateTest, FullProductWritesWhatPlainDecodingWrites) {
  EXPECT_EQ(RunCells(1), static_cast<int>(std::size(kSituations) * std::size(kDrafters) *
                                          std::size(kSamplings) * std::size(kBudgets)));
}

// The same on a GPU, verifiers and drafter both. Skipped without one.
class GateCudaTest : public GateTest {
 protected:
  void SetUp() override {
    if (const auto device = OpenCudaDevice({}); !device.ok()) {
      GTEST_SKIP() << "skipped: " << device.status().message();
    }
    MakeWorld(DeviceKind::kCuda);
  }
};

TEST_F(GateCudaTest, ASampleOfCellsWritesWhatPlainDecodingWrites) { EXPECT_GT(RunCells(11), 100); }

TEST_F(GateCudaTest, ASampleOfControlledCellsWritesWhatPlainDecodingWrites) {
  EXPECT_GT(RunControlledCells(37), 70);
}

TEST_F(GateCudaTest, TextDependsOnSeedsAndOnEveryTruncation) { ExpectTextDependsOnSampling(); }

// For a run by hand and for the full tier of a machine with a GPU.
TEST_F(GateCudaTest, FullProductWritesWhatPlainDecodingWrites) {
  EXPECT_EQ(RunCells(1), static_cast<int>(std::size(kSituations) * std::size(kDrafters) *
                                          std::size(kSamplings) * std::size(kBudgets)));
}

}  // namespace
}  // namespace arborist::tests
