#include "common/comm/local_communicator.h"

#include <gtest/gtest.h>

#include <random>
#include <thread>
#include <vector>

namespace arborist {
namespace {

// Runs body(communicator) on one thread a rank.
template <typename Body>
void OnRanks(int size, const Body& body) {
  LocalGroup group(size);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      LocalCommunicator communicator(group, rank);
      body(communicator, group);
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
}

std::vector<std::vector<float>> RandomParts(int parts, size_t size) {
  std::mt19937 random(std::random_device{}());
  std::normal_distribution<float> normal;
  std::vector<std::vector<float>> values(parts, std::vector<float>(size));
  for (auto& part : values) {
    for (float& value : part) {
      value = normal(random) * std::exp2(normal(random) * 8);
    }
  }
  return values;
}

TEST(LocalCommunicator, SumsInTheFixedTreeForEveryRankCount) {
  const size_t size = 1000;
  const auto part = RandomParts(8, size);
  std::vector<float> want(size);
  for (size_t i = 0; i < size; ++i) {
    want[i] = ((part[0][i] + part[1][i]) + (part[2][i] + part[3][i])) +
              ((part[4][i] + part[5][i]) + (part[6][i] + part[7][i]));
  }
  for (const int ranks : {2, 4, 8}) {
    // A rank brings the subtree sum of its neighbouring parts, as a row-parallel product does.
    auto local = part;
    for (int width = 8; width > ranks; width /= 2) {
      for (int i = 0; i < width / 2; ++i) {
        for (size_t j = 0; j < size; ++j) {
          local[i][j] = local[2 * i][j] + local[2 * i + 1][j];
        }
      }
    }
    OnRanks(ranks, [&](Communicator& communicator, LocalGroup&) {
      std::vector<float>& mine = local[communicator.rank()];
      EXPECT_TRUE(communicator.AllReduceSum(mine).ok());
      EXPECT_EQ(mine, want) << ranks << " ranks";
    });
  }
}

TEST(LocalCommunicator, GathersInRankOrderAndBroadcastsFromTheRoot) {
  for (const int ranks : {1, 3, 8}) {
    OnRanks(ranks, [&](Communicator& communicator, LocalGroup&) {
      for (int round = 0; round < 50; ++round) {
        const std::vector<float> mine = {static_cast<float>(communicator.rank()), static_cast<float>(round)};
        std::vector<float> all(2 * ranks, -1);
        EXPECT_TRUE(communicator.AllGather(mine, all).ok());
        int word = communicator.rank() == round % ranks ? 1000 + round : -1;
        EXPECT_TRUE(communicator.Broadcast(std::as_writable_bytes(std::span(&word, 1)), round % ranks).ok());
        EXPECT_EQ(word, 1000 + round);
        for (int rank = 0; rank < ranks; ++rank) {
          EXPECT_EQ(all[2 * rank], rank);
          EXPECT_EQ(all[2 * rank + 1], round);
        }
      }
    });
  }
}

TEST(LocalCommunicator, ARankThatGivesUpFreesTheOthers) {
  OnRanks(4, [](Communicator& communicator, LocalGroup& group) {
    std::vector<float> values(8, 1);
    if (communicator.rank() == 2) {
      group.Abort();
      return;
    }
    EXPECT_EQ(communicator.AllReduceSum(values).code(), absl::StatusCode::kAborted);
    EXPECT_EQ(communicator.AllReduceSum(values).code(), absl::StatusCode::kAborted);
  });
}

}  // namespace
}  // namespace arborist
