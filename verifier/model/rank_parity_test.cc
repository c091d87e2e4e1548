// 1, 2, 4 and 8 ranks compute the same bits (DESIGN section 7).

#include <gtest/gtest.h>

#include <cstring>
#include <thread>

#include "verifier/model/testing/golden_model.h"

namespace arborist::verifier {
namespace {

using testing::Harness;

struct Result {
  std::vector<float> logits;
  std::vector<std::byte> kv;
};

std::vector<Result> RunOnRanks(const std::string& target, int ranks) {
  const testing::Golden golden = testing::ReadGolden(target);
  LocalGroup group(ranks);
  std::vector<Result> results(ranks);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      LocalCommunicator communicator(group, rank);
      const auto harness =
          Harness::Make({.directory = testing::GoldenDirectory(target), .communicator = &communicator});
      if (!harness.ok()) {
        ADD_FAILURE() << harness.status();
        group.Abort();
        return;
      }
      const auto output = (*harness)->Run(golden.tokens, 64);
      if (!output.ok()) {
        ADD_FAILURE() << output.status();
        group.Abort();
        return;
      }
      results[rank] = {output->logits, (*harness)->CommittedKv()};
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  return results;
}

bool SameBits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

TEST(RankParity, EveryRankCountGivesTheSameBitsOnEveryRank) {
  for (const std::string& target : testing::kGoldenTargets) {
    const int most = target == "tied" ? 8 : 4;  // as many as there are heads
    const Result want = RunOnRanks(target, 1)[0];
    ASSERT_FALSE(want.logits.empty());
    for (int ranks = 2; ranks <= most; ranks *= 2) {
      for (const Result& got : RunOnRanks(target, ranks)) {
        EXPECT_TRUE(SameBits(got.logits, want.logits)) << target << ", " << ranks << " ranks";
        EXPECT_TRUE(got.kv == want.kv) << target << ", " << ranks << " ranks";
      }
    }
  }
}

TEST(RankParity, RanksThatDoNotDivideTheHeadsAreRefused) {
  const auto config = ReadModelConfig(testing::GoldenDirectory("v2_lite"));
  ASSERT_TRUE(config.ok());
  EXPECT_EQ(ShardPlan::Make(*config, 0, 8).status().message(),
            "ranks=8, expected a divisor of num_attention_heads=4");
  EXPECT_EQ(ShardPlan::Make(*config, 0, 3).status().message(), "ranks=3, expected 1, 2, 4 or 8");
}

}  // namespace
}  // namespace arborist::verifier
