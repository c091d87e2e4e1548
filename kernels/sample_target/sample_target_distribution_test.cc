// Drawing by argmax of logits plus noise must be plain softmax sampling, and draws must not know of each
// other.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <random>
#include <vector>

#include "kernels/sample_target/sample_target.h"

namespace arborist::kernels {
namespace {

constexpr int kTokens = 8;
constexpr int kDraws = 250'000;

// Chosen ids of kDraws rows with the same logits; row i has key(i) as position, seed and sample index.
struct Key {
  int32_t position;
  uint64_t seed;
  uint32_t sample_index;
};

std::vector<int> DrawMany(const std::vector<float>& logits, SamplingParams params,
                          const std::function<Key(int)>& key) {
  constexpr int kRows = 4096;
  ThreadPool pool(1);
  const auto vocabulary = static_cast<int64_t>(logits.size());
  std::vector<float> rows;
  for (int row = 0; row < kRows; ++row) {
    rows.insert(rows.end(), logits.begin(), logits.end());
  }
  const size_t bytes = SampleTargetScratchBytes(vocabulary, 1);
  std::vector<std::byte> memory(bytes + 64);
  auto* aligned = memory.data() + (64 - reinterpret_cast<uintptr_t>(memory.data()) % 64) % 64;
  std::vector<int32_t> position(kRows);
  std::vector<int32_t> index(kRows);
  std::vector<SamplingParams> all(kRows, params);
  std::vector<TokenId> chosen(kRows);
  std::vector<int> result;
  while (static_cast<int>(result.size()) < kDraws) {
    for (int row = 0; row < kRows; ++row) {
      const Key k = key(static_cast<int>(result.size()) + row);
      position[row] = k.position;
      all[row].seed = k.seed;
      all[row].sample_index = k.sample_index;
      index[row] = row;
    }
    const absl::Status status = cpu::SampleTarget({.logits = {rows.data(), kRows, vocabulary, vocabulary},
                                                   .position = {position.data(), kRows},
                                                   .params_index = {index.data(), kRows},
                                                   .params = {all.data(), kRows},
                                                   .chosen = {chosen.data(), kRows},
                                                   .log_prob = {},
                                                   .scratch = {aligned, static_cast<int64_t>(bytes)}},
                                                  {.threads = &pool});
    EXPECT_TRUE(status.ok()) << status;
    for (TokenId id : chosen) {
      result.push_back(Raw(id));
    }
  }
  result.resize(kDraws);
  return result;
}

double ChiSquare(const std::vector<double>& counts, const std::vector<double>& expected) {
  double sum = 0;
  for (size_t i = 0; i < counts.size(); ++i) {
    sum += (counts[i] - expected[i]) * (counts[i] - expected[i]) / expected[i];
  }
  return sum;
}

// Exceeded with probability 1e-7 if the hypothesis is true (Wilson-Hilferty).
double Limit(int degrees) {
  const double a = 2.0 / (9.0 * degrees);
  return degrees * std::pow(1 - a + 5.2 * std::sqrt(a), 3);
}

std::vector<double> Softmax(const std::vector<float>& logits, double temperature) {
  std::vector<double> p;
  double sum = 0;
  for (float value : logits) {
    p.push_back(std::exp(static_cast<double>(value) / temperature));
    sum += p.back();
  }
  for (double& value : p) {
    value /= sum;
  }
  return p;
}

bool FitsSoftmax(const std::vector<int>& draws, const std::vector<double>& p) {
  std::vector<double> counts(p.size());
  for (int id : draws) {
    ++counts[id];
  }
  std::vector<double> expected;
  for (double value : p) {
    expected.push_back(value * static_cast<double>(draws.size()));
  }
  return ChiSquare(counts, expected) < Limit(static_cast<int>(p.size()) - 1);
}

// Joint counts of (a[i], b[i]) against the product of p with itself.
bool IndependentPairs(const std::vector<int>& a, const std::vector<int>& b, const std::vector<double>& p) {
  const size_t n = p.size();
  std::vector<double> counts(n * n);
  std::vector<double> expected(n * n);
  for (size_t i = 0; i < a.size(); ++i) {
    ++counts[a[i] * n + b[i]];
  }
  for (size_t i = 0; i < n * n; ++i) {
    expected[i] = p[i / n] * p[i % n] * static_cast<double>(a.size());
  }
  return ChiSquare(counts, expected) < Limit(static_cast<int>(n * n) - 1);
}

class SampleTargetDistributionTest : public testing::Test {
 protected:
  SampleTargetDistributionTest() {
    std::mt19937 random(std::random_device{}());
    std::uniform_real_distribution<float> logit(-1.5f, 1.5f);
    for (int v = 0; v < kTokens; ++v) {
      logits_.push_back(logit(random));
    }
    seed_ = (uint64_t{random()} << 32) | random();
    RecordProperty("seed", std::to_string(seed_));
  }

  std::function<Key(int)> Positions(uint64_t seed, uint32_t sample_index) const {
    return [=](int i) { return Key{i, seed, sample_index}; };
  }

  std::vector<float> logits_;
  uint64_t seed_;
};

TEST_F(SampleTargetDistributionTest, DrawsOverPositionsSeedsAndSamplesFollowSoftmaxAtAnyTemperature) {
  const auto over_seeds = [&](int i) { return Key{77, seed_ + static_cast<uint64_t>(i), 0}; };
  const auto over_samples = [&](int i) { return Key{77, seed_, static_cast<uint32_t>(i)}; };
  EXPECT_TRUE(
      FitsSoftmax(DrawMany(logits_, {.temperature = 0.6f}, Positions(seed_, 0)), Softmax(logits_, 0.6)));
  EXPECT_TRUE(FitsSoftmax(DrawMany(logits_, {.temperature = 1}, over_seeds), Softmax(logits_, 1)));
  EXPECT_TRUE(FitsSoftmax(DrawMany(logits_, {.temperature = 1.7f}, over_samples), Softmax(logits_, 1.7)));
}

TEST_F(SampleTargetDistributionTest, ATruncatedSetIsDrawnInProportion) {
  std::vector<float> logits = logits_;
  logits[2] = logits[5] = -3;  // the two that top-k drops
  const SamplingParams params = {.temperature = 1, .top_k = kTokens - 2};
  std::vector<int> draws = DrawMany(logits, params, Positions(seed_, 1));
  std::vector<float> kept;
  std::vector<int> renumbered(kTokens, -1);
  for (int v = 0; v < kTokens; ++v) {
    if (v != 2 && v != 5) {
      renumbered[v] = static_cast<int>(kept.size());
      kept.push_back(logits[v]);
    }
  }
  for (int& id : draws) {
    id = renumbered[id];
    ASSERT_GE(id, 0);
  }
  EXPECT_TRUE(FitsSoftmax(draws, Softmax(kept, 1)));
}

TEST_F(SampleTargetDistributionTest, APlantedBiasOfTwoPercentIsFound) {
  const std::vector<float> logits(kTokens, 0.0f);
  std::vector<int> draws = DrawMany(logits, {.temperature = 1}, Positions(seed_, 0));
  const std::vector<double> p = Softmax(logits, 1);
  ASSERT_TRUE(FitsSoftmax(draws, p));
  // Two draws in a hundred go to token 0, whatever was drawn.
  std::mt19937 random(std::random_device{}());
  for (int& id : draws) {
    id = random() % 50 == 0 ? 0 : id;
  }
  EXPECT_FALSE(FitsSoftmax(draws, p));
}

TEST_F(SampleTargetDistributionTest, AdjacentPositionsSeedsAndSamplesAreIndependent) {
  const SamplingParams params = {.temperature = 1};
  const std::vector<double> p = Softmax(logits_, 1);
  const std::vector<int> here = DrawMany(logits_, params, Positions(seed_, 0));
  const std::vector<int> next_seed = DrawMany(logits_, params, Positions(seed_ + 1, 0));
  const std::vector<int> next_sample = DrawMany(logits_, params, Positions(seed_, 1));
  const std::vector<int> next_position(here.begin() + 1, here.end());
  EXPECT_TRUE(IndependentPairs({here.begin(), here.end() - 1}, next_position, p));
  EXPECT_TRUE(IndependentPairs(here, next_seed, p));
  EXPECT_TRUE(IndependentPairs(here, next_sample, p));
}

TEST_F(SampleTargetDistributionTest, APlantedDependenceOfTwoPercentIsFound) {
  const std::vector<double> p = Softmax(logits_, 1);
  std::vector<int> draws = DrawMany(logits_, {.temperature = 1}, Positions(seed_, 0));
  std::mt19937 random(std::random_device{}());
  for (size_t i = 1; i < draws.size(); ++i) {
    draws[i] = random() % 50 == 0 ? draws[i - 1] : draws[i];
  }
  const std::vector<int> next(draws.begin() + 1, draws.end());
  EXPECT_FALSE(IndependentPairs({draws.begin(), draws.end() - 1}, next, p));
}

}  // namespace
}  // namespace arborist::kernels
