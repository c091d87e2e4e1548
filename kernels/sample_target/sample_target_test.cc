#include "kernels/sample_target/sample_target.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "kernels/sample_target/sampling_cases.h"
#include "kernels/sample_target/sampling_rule.h"
#include "kernels/simd/isa.h"

namespace arborist::kernels {
namespace {

using Sample = absl::Status (*)(const SampleTargetArgs&, StreamView);

struct Sampled {
  absl::Status status;
  std::vector<int32_t> chosen;
  std::vector<uint32_t> log_prob_bits;
  std::vector<int32_t> error;
};

Sampled Draw(Sample sample, const Batch& batch, int threads, bool with_log_prob = true) {
  ThreadPool pool(threads);
  const size_t bytes = SampleTargetScratchBytes(batch.vocabulary, threads);
  std::vector<std::byte> memory(bytes + 64, std::byte{0xFF});
  auto* aligned = memory.data() + (64 - reinterpret_cast<uintptr_t>(memory.data()) % 64) % 64;
  std::vector<TokenId> chosen(batch.rows(), TokenId{-7});
  std::vector<float> log_prob(batch.rows(), std::nanf(""));
  Sampled result = {
      .status = {}, .chosen = {}, .log_prob_bits = {}, .error = std::vector<int32_t>(batch.rows(), 7)};
  result.status = sample({.logits = {batch.logits.data(), batch.rows(), batch.vocabulary, batch.vocabulary},
                          .position = {batch.position.data(), batch.rows()},
                          .params_index = {batch.params_index.data(), batch.rows()},
                          .params = {batch.params.data(), static_cast<int64_t>(batch.params.size())},
                          .chosen = {chosen.data(), batch.rows()},
                          .log_prob = {log_prob.data(), with_log_prob ? batch.rows() : 0},
                          .scratch = {aligned, static_cast<int64_t>(bytes)},
                          .error = {result.error.data(), batch.rows()}},
                         {.threads = &pool});
  for (int64_t row = 0; row < batch.rows(); ++row) {
    result.chosen.push_back(Raw(chosen[row]));
    result.log_prob_bits.push_back(std::bit_cast<uint32_t>(log_prob[row]));
  }
  return result;
}

TEST(SampleTargetTest, IdsAndLogProbabilitiesEqualTheFullSortForAnyThreadsAndRows) {
  Generator generator;
  for (int64_t vocabulary : {1, 2, 5, 15, 16, 17, 100, 1000, 4096}) {
    Batch batch{.vocabulary = vocabulary, .logits = {}, .position = {}, .params_index = {}, .params = {}};
    const int rows = vocabulary > 500 ? 60 : 250;
    for (int row = 0; row < rows; ++row) {
      batch.Add(generator.Row(vocabulary), static_cast<int32_t>(generator.Below(1u << 31)),
                generator.Params(vocabulary));
    }
    const Sampled expected = Draw(reference::SampleTarget, batch, 1);
    ASSERT_TRUE(expected.status.ok()) << expected.status;
    for (Isa isa : SupportedIsas()) {
      ForceIsa(isa);  // the best one stays in force
      for (int threads : {1, 2, 5}) {
        const Sampled got = Draw(cpu::SampleTarget, batch, threads);
        ASSERT_TRUE(got.status.ok()) << got.status;
        EXPECT_EQ(got.chosen, expected.chosen);
        EXPECT_EQ(got.log_prob_bits, expected.log_prob_bits);
      }
    }
    EXPECT_EQ(Draw(cpu::SampleTarget, batch, 2, false).chosen, expected.chosen);
    for (int row : {0, rows / 2, rows - 1}) {
      Batch alone{.vocabulary = vocabulary, .logits = {}, .position = {}, .params_index = {}, .params = {}};
      const auto begin = batch.logits.begin() + row * vocabulary;
      alone.Add({begin, begin + vocabulary}, batch.position[row], batch.params[row]);
      const Sampled got = Draw(cpu::SampleTarget, alone, 1);
      EXPECT_EQ(got.chosen[0], expected.chosen[row]);
      EXPECT_EQ(got.log_prob_bits[0], expected.log_prob_bits[row]);
    }
  }
}

// Ids that can be chosen at all, by drawing often.
std::vector<int32_t> Reachable(const std::vector<float>& logits, SamplingParams params) {
  Batch batch{.vocabulary = static_cast<int64_t>(logits.size()),
              .logits = {},
              .position = {},
              .params_index = {},
              .params = {}};
  for (int32_t position = 0; position < 3000; ++position) {
    batch.Add(logits, position, params);
  }
  std::vector<int32_t> ids = Draw(cpu::SampleTarget, batch, 2).chosen;
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  return ids;
}

TEST(SampleTargetTest, GreedyTakesTheLowestIdOfTheLargestLogits) {
  Batch batch{.vocabulary = 40, .logits = {}, .position = {}, .params_index = {}, .params = {}};
  std::vector<float> row(40, -1.0f);
  row[7] = row[23] = row[39] = 2;
  batch.Add(row, 3, {});
  batch.Add(std::vector<float>(40, 5.0f), 3, {});
  row.assign(40, -0.0f);
  row[11] = 0.0f;  // equal to -0
  batch.Add(row, 3, {});
  EXPECT_THAT(Draw(cpu::SampleTarget, batch, 1).chosen, testing::ElementsAre(7, 0, 0));
}

TEST(SampleTargetTest, TopKKeepsExactlyKWithTheLowestIdsAtTheThreshold) {
  const std::vector<float> logits = {1, 1.5f, 1, 1, 1.5f, 1, 0.9f};
  EXPECT_THAT(Reachable(logits, {.temperature = 1, .top_k = 4}), testing::ElementsAre(0, 1, 2, 4));
  EXPECT_THAT(Reachable(logits, {.temperature = 1, .top_k = 1}), testing::ElementsAre(1));
  EXPECT_EQ(Reachable(logits, {.temperature = 1, .top_k = 7}).size(), 7u);
  EXPECT_EQ(Reachable(logits, {.temperature = 1, .top_k = 1000}).size(), 7u);
}

TEST(SampleTargetTest, TopPIsTheSmallestSetOfThatMassAndNeverEmpty) {
  // Probabilities 1/2, 1/4, 1/8, 1/8.
  const std::vector<float> logits = {std::log(0.125f), std::log(0.5f), std::log(0.25f), std::log(0.125f)};
  EXPECT_THAT(Reachable(logits, {.temperature = 1, .top_p = 0.45f}), testing::ElementsAre(1));
  EXPECT_THAT(Reachable(logits, {.temperature = 1, .top_p = 0.7f}), testing::ElementsAre(1, 2));
  EXPECT_THAT(Reachable(logits, {.temperature = 1, .top_p = 0.8f}), testing::ElementsAre(0, 1, 2));
  EXPECT_THAT(Reachable(logits, {.temperature = 1, .top_p = 0.9f}), testing::ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(Reachable(logits, {.temperature = 1, .top_p = 1e-38f}), testing::ElementsAre(1));
}

TEST(SampleTargetTest, TopPCountsTheMassOfTheTopKSet) {
  // Of the two best, the first has 2/3.
  const std::vector<float> logits = {std::log(0.125f), std::log(0.5f), std::log(0.25f), std::log(0.125f)};
  EXPECT_THAT(Reachable(logits, {.temperature = 1, .top_k = 2, .top_p = 0.6f}), testing::ElementsAre(1));
  EXPECT_THAT(Reachable(logits, {.temperature = 1, .top_k = 2, .top_p = 0.7f}), testing::ElementsAre(1, 2));
}

TEST(SampleTargetTest, MinPComparesWithTheLargestProbabilityAfterTemperature) {
  const std::vector<float> logits = {0, -1, -2, -4};  // ratios 1, 0.37, 0.14, 0.02
  EXPECT_THAT(Reachable(logits, {.temperature = 1, .min_p = 0.1f}), testing::ElementsAre(0, 1, 2));
  EXPECT_THAT(Reachable(logits, {.temperature = 0.5f, .min_p = 0.1f}), testing::ElementsAre(0, 1));
  EXPECT_THAT(Reachable(logits, {.temperature = 1, .min_p = 1}), testing::ElementsAre(0));
}

TEST(SampleTargetTest, ATinyTemperatureIsGreedyUpToTies) {
  EXPECT_THAT(Reachable({1, 3, 3, 2.9f}, {.temperature = 1e-38f}), testing::ElementsAre(1, 2));
}

TEST(SampleTargetTest, LogProbabilityIsThatOfTheRawLogitsWhateverTheParameters) {
  const std::vector<float> logits = {0.5f, -1, 2, 0, 3};
  double sum = 0;
  for (float value : logits) {
    sum += std::exp(static_cast<double>(value));
  }
  Batch batch{.vocabulary = 5, .logits = {}, .position = {}, .params_index = {}, .params = {}};
  for (int32_t position = 0; position < 200; ++position) {
    batch.Add(logits, position, {.temperature = 1.7f, .top_k = 3, .top_p = 0.99f});
  }
  const Sampled got = Draw(cpu::SampleTarget, batch, 1);
  for (int row = 0; row < 200; ++row) {
    const double expected = static_cast<double>(logits[got.chosen[row]]) - std::log(sum);
    // A few float roundings of values below 4.
    EXPECT_TRUE(std::abs(static_cast<double>(std::bit_cast<float>(got.log_prob_bits[row])) - expected) <=
                2e-6);
  }
}

TEST(SampleTargetTest, ANonFiniteLogitIsAnInternalErrorNamingTheFirstRowAndIdAndFlagsItsRow) {
  for (float bad :
       {std::nanf(""), std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity()}) {
    for (float temperature : {0.0f, 1.0f}) {
      for (int64_t id : {0, 17, 99}) {
        Batch batch{.vocabulary = 100, .logits = {}, .position = {}, .params_index = {}, .params = {}};
        for (int row = 0; row < 8; ++row) {
          batch.Add(std::vector<float>(100, 1.0f), row, {.temperature = temperature});
        }
        batch.logits[3 * 100 + id] = bad;
        batch.logits[6 * 100 + 5] = bad;
        for (Sample sample : {reference::SampleTarget, cpu::SampleTarget}) {
          const Sampled got = Draw(sample, batch, 3);
          EXPECT_EQ(got.status.code(), absl::StatusCode::kInternal);
          EXPECT_THAT(std::string(got.status.message()),
                      testing::StartsWith("logits[3][" + std::to_string(id) + "]="));
          EXPECT_THAT(got.error, testing::ElementsAre(0, 0, 0, 1, 0, 0, 1, 0));
          EXPECT_EQ(got.chosen[3], 0);
          EXPECT_EQ(got.log_prob_bits[6], 0u);
          EXPECT_NE(got.log_prob_bits[7], 0u);  // the neighbours are served
        }
      }
    }
  }
}

TEST(SampleTargetTest, BadParametersAreRefusedByFieldValueAndRange) {
  const auto message = [](const SamplingParams& params) {
    return std::string(ValidateSamplingParams(params).message());
  };
  EXPECT_EQ(message({}), "");
  EXPECT_EQ(message({.temperature = -1}), "temperature=-1, expected a finite value >= 0");
  EXPECT_EQ(message({.temperature = std::nanf("")}), "temperature=nan, expected a finite value >= 0");
  EXPECT_EQ(message({.temperature = std::numeric_limits<float>::infinity()}),
            "temperature=inf, expected a finite value >= 0");
  EXPECT_EQ(message({.top_k = -1}), "top_k=-1, expected >= 0 (0 = off)");
  EXPECT_EQ(message({.top_p = 0}), "top_p=0, expected a value in (0, 1]");
  EXPECT_EQ(message({.top_p = 1.5f}), "top_p=1.5, expected a value in (0, 1]");
  EXPECT_EQ(message({.top_p = std::nanf("")}), "top_p=nan, expected a value in (0, 1]");
  EXPECT_EQ(message({.min_p = -0.1f}), "min_p=-0.1, expected a value in [0, 1]");
  EXPECT_EQ(message({.min_p = std::nanf("")}), "min_p=nan, expected a value in [0, 1]");
}

TEST(SampleTargetTest, IndicesAndPositionsOutOfRangeAreRefusedByRow) {
  Batch batch{.vocabulary = 4, .logits = {}, .position = {}, .params_index = {}, .params = {}};
  batch.Add({1, 2, 3, 4}, 5, {});
  batch.Add({1, 2, 3, 4}, 6, {});
  batch.params_index[1] = 2;
  EXPECT_EQ(std::string(Draw(cpu::SampleTarget, batch, 1).status.message()),
            "params_index[1]=2, expected an index in [0, 2)");
  batch.params_index[1] = 1;
  batch.position[1] = -1;
  EXPECT_EQ(std::string(Draw(cpu::SampleTarget, batch, 1).status.message()), "position[1]=-1, expected >= 0");
}

TEST(SamplingRuleTest, OrderKeysOrderFloatsAndJoinTheZeros) {
  const float values[] = {-3e38f, -1, -1e-42f, -0.0f, 1e-42f, 0.5f, 1, 3e38f};
  for (size_t i = 1; i < std::size(values); ++i) {
    EXPECT_LT(OrderKey(values[i - 1]), OrderKey(values[i]));
  }
  EXPECT_EQ(OrderKey(-0.0f), OrderKey(0.0f));
}

TEST(SamplingRuleTest, NeededMassIsTheExactCeiling) {
  std::mt19937_64 random(std::random_device{}());
  for (int round = 0; round < 10000; ++round) {
    const uint64_t total = (random() >> (1 + random() % 40)) | 1;
    const auto units = static_cast<uint32_t>(1 + random() % (1 << 24));
    const auto product = static_cast<unsigned __int128>(total) * units;
    const auto expected = static_cast<uint64_t>((product + 0xffffffu) >> 24);
    EXPECT_EQ(NeededMass(total, static_cast<float>(units) / 16777216.0f), expected);
  }
  EXPECT_EQ(NeededMass(1000, 1e-38f), 1u);
}

}  // namespace
}  // namespace arborist::kernels
