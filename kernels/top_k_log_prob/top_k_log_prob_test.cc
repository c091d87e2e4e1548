#include "kernels/top_k_log_prob/top_k_log_prob.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "kernels/exact_math/exact_math.h"
#include "kernels/simd/isa.h"

namespace arborist::kernels {
namespace {

using Kernel = absl::Status (*)(const TopKLogProbArgs&, StreamView);

struct Options {
  int k = 8;
  float beta = 1;
  float temperature = 0;
  uint64_t seed = 7;
};

struct Candidates {
  absl::Status status;
  std::vector<int32_t> token;  // [depths * k]
  std::vector<uint32_t> log_prob_bits;

  float log_prob(int i) const { return std::bit_cast<float>(log_prob_bits[i]); }
};

View1<std::byte> AsBytes(std::vector<float>& memory) {
  return {reinterpret_cast<std::byte*>(memory.data()), static_cast<int64_t>(memory.size() * sizeof(float))};
}

Candidates Rank(Kernel kernel, const std::vector<float>& logits, int64_t depths, const Options& options,
                int threads) {
  const auto vocabulary = static_cast<int64_t>(logits.size()) / depths;
  const int64_t k = options.k;
  std::vector<TokenId> token(depths * k, TokenId{-7});
  std::vector<float> log_prob(depths * k, std::nanf(""));
  std::vector<float> scratch(depths * vocabulary, std::nanf(""));
  ThreadPool pool(threads);
  const TopKParams params = {.temperature = options.temperature,
                             .beta = options.beta,
                             .seed = options.seed,
                             .sample_index = 3,
                             .first_position = 100,
                             .depths = static_cast<int32_t>(depths),
                             .k = options.k};
  Candidates result;
  result.status = kernel({.logits = View2<const float>{logits.data(), depths, vocabulary, vocabulary},
                          .params = {&params, 1},
                          .token = {token.data(), depths, k, k},
                          .log_prob = {log_prob.data(), depths, k, k},
                          .scratch = AsBytes(scratch)},
                         {.threads = &pool});
  for (int64_t i = 0; i < depths * k; ++i) {
    result.token.push_back(Raw(token[i]));
    result.log_prob_bits.push_back(std::bit_cast<uint32_t>(log_prob[i]));
  }
  return result;
}

std::vector<float> RandomLogits(int64_t count, int kind) {
  std::mt19937 random(std::random_device{}());
  std::normal_distribution<float> normal(0, 4);
  std::vector<float> logits(count);
  for (float& value : logits) {
    const float x = normal(random);
    value = kind == 0   ? x
            : kind == 1 ? std::round(x)  // many ties
            : kind == 2 ? -3.0f
            : kind == 3 ? (random() % 2 == 0 ? 0.0f : -0.0f)
                        : (random() % 2 == 0 ? 3e38f : -3e38f);
  }
  return logits;
}

TEST(TopKLogProbTest, EqualsTheFullSortBitForBitForAnyThreadsAndIsa) {
  for (int64_t vocabulary : {1, 2, 17, 64, 100, 1000, 4096}) {
    for (int kind = 0; kind < 5; ++kind) {
      for (float temperature : {0.0f, 0.6f, 1.0f, 1e-38f}) {
        const std::vector<float> logits = RandomLogits(5 * vocabulary, kind);
        for (int k : {1, 3, 64}) {
          const Options options = {.k = static_cast<int>(std::min<int64_t>(k, vocabulary)),
                                   .beta = k == 3 ? 0.8f : 1.0f,
                                   .temperature = temperature};
          const Candidates expected = Rank(reference::TopKLogProb, logits, 5, options, 1);
          ASSERT_TRUE(expected.status.ok()) << expected.status;
          for (Isa isa : SupportedIsas()) {
            ForceIsa(isa);  // the best one stays in force
            for (int threads : {1, 3}) {
              const Candidates got = Rank(cpu::TopKLogProb, logits, 5, options, threads);
              ASSERT_TRUE(got.status.ok()) << got.status;
              ASSERT_EQ(got.token, expected.token);
              ASSERT_EQ(got.log_prob_bits, expected.log_prob_bits);
            }
          }
        }
      }
    }
  }
}

TEST(TopKLogProbTest, TiesGoToTheLowerIdAndEdgesFitTheTreeBuilder) {
  std::vector<float> logits(200, 1.0f);
  logits[150] = logits[40] = 2;
  const Candidates got = Rank(cpu::TopKLogProb, logits, 1, {.k = 5}, 1);
  EXPECT_THAT(got.token, testing::ElementsAre(40, 150, 0, 1, 2));
  for (int kind = 0; kind < 5; ++kind) {
    for (float temperature : {0.0f, 1.0f, 1e-38f}) {
      const Candidates c =
          Rank(cpu::TopKLogProb, RandomLogits(1000, kind), 1, {.k = 64, .temperature = temperature}, 1);
      for (int i = 0; i < 64; ++i) {
        EXPECT_TRUE(std::isfinite(c.log_prob(i)) && c.log_prob(i) <= 0);
        EXPECT_TRUE(i == 0 || c.log_prob(i) <= c.log_prob(i - 1));
      }
    }
  }
}

TEST(TopKLogProbTest, EdgesAreALogSoftmaxOverTheWholeVocabulary) {
  const std::vector<float> logits = RandomLogits(3000, 0);
  for (float beta : {1.0f, 0.5f}) {
    const Candidates got = Rank(cpu::TopKLogProb, logits, 1, {.k = 64, .beta = beta}, 1);
    double sum = 0;
    for (float value : logits) {
      sum += std::exp(static_cast<double>(beta) * static_cast<double>(value));
    }
    for (int i = 0; i < 64; ++i) {
      const double expected =
          static_cast<double>(beta) * static_cast<double>(logits[got.token[i]]) - std::log(sum);
      // Roundings of values below 32, and of a sum of 3000 terms in 16 lanes.
      EXPECT_TRUE(std::abs(static_cast<double>(got.log_prob(i)) - expected) <= 2e-5);
    }
  }
}

TEST(TopKLogProbTest, CoupledNoiseIsTheTargetsAtThePositionOfTheDepth) {
  constexpr int64_t kVocabulary = 500;
  const std::vector<float> logits = RandomLogits(4 * kVocabulary, 0);
  const Candidates got = Rank(cpu::TopKLogProb, logits, 4, {.k = 1, .temperature = 0.7f}, 2);
  for (int depth = 0; depth < 4; ++depth) {
    const float* row = logits.data() + depth * kVocabulary;
    int32_t best = 0;
    const auto value = [&](int32_t v) {
      return static_cast<double>(row[v]) / 0.7 + static_cast<double>(Gumbel(7, 3, 100 + depth, v));
    };
    for (int32_t v = 1; v < kVocabulary; ++v) {
      best = value(v) > value(best) ? v : best;
    }
    EXPECT_NEAR(value(got.token[depth]), value(best), 1e-4);
  }
  // Without a preference of the logits another seed ranks others first: equal by chance once in 500^4.
  const std::vector<float> flat(4 * kVocabulary, 0.0f);
  EXPECT_NE(Rank(cpu::TopKLogProb, flat, 4, {.k = 1, .temperature = 0.7f, .seed = 8}, 2).token,
            Rank(cpu::TopKLogProb, flat, 4, {.k = 1, .temperature = 0.7f, .seed = 9}, 2).token);
}

TEST(TopKLogProbTest, ANonFiniteLogitIsAnInternalErrorNamingTheFirstDepthAndId) {
  for (float bad : {std::nanf(""), std::numeric_limits<float>::infinity()}) {
    std::vector<float> logits = RandomLogits(4 * 100, 0);
    logits[2 * 100 + 55] = bad;
    logits[3 * 100 + 5] = bad;
    for (Kernel kernel : {reference::TopKLogProb, cpu::TopKLogProb}) {
      const absl::Status status = Rank(kernel, logits, 4, {}, 2).status;
      EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
      EXPECT_THAT(std::string(status.message()), testing::StartsWith("draft logits[2][55]="));
    }
  }
}

TEST(TopKLogProbTest, BadOptionsAreRefusedByFieldValueAndRange) {
  const std::vector<float> logits = RandomLogits(40, 0);
  const auto message = [&](const Options& options) {
    return std::string(Rank(cpu::TopKLogProb, logits, 1, options, 1).status.message());
  };
  EXPECT_EQ(message({.k = 40}), "");
  EXPECT_EQ(message({.k = 41}), "params[0].k=41, expected 0..40");
  EXPECT_EQ(message({.beta = 0}), "params[0].beta=0, expected a finite value > 0");
  EXPECT_EQ(message({.beta = std::nanf("")}), "params[0].beta=nan, expected a finite value > 0");
  EXPECT_EQ(message({.temperature = -1}), "params[0].temperature=-1, expected a finite value >= 0");
}

TEST(TopKLogProbTest, EachStreamOfABatchGetsWhatItGetsAloneAndPaddingIsLeftAlone) {
  constexpr int64_t kVocabulary = 300;
  constexpr int64_t kDepths = 3;
  constexpr int64_t kMaxK = 7;
  std::vector<float> logits = RandomLogits(4 * kDepths * kVocabulary, 0);
  std::vector<BFloat16> stored(logits.size());
  for (size_t i = 0; i < logits.size(); ++i) {
    stored[i] = ToBFloat16(logits[i]);
    logits[i] = ToFloat(stored[i]);
  }
  const std::vector<TopKParams> params = {
      {.temperature = 0.7f, .beta = 0.9f, .seed = 5, .first_position = 10, .depths = 3, .k = 7},
      {.depths = 2, .k = 3},
      {.depths = 0, .k = 0},
      {.temperature = 1, .seed = 6, .sample_index = 2, .first_position = 4, .depths = 1, .k = 5}};
  const auto run = [&](Kernel kernel, const LogitsView& view, View1<const TopKParams> wanted) {
    std::vector<TokenId> token(view.rows * kMaxK, TokenId{-7});
    std::vector<float> log_prob(view.rows * kMaxK, 7.0f);
    std::vector<float> scratch(view.rows * kVocabulary);
    ThreadPool pool(2);
    EXPECT_TRUE(kernel({.logits = view,
                        .params = wanted,
                        .token = {token.data(), view.rows, kMaxK, kMaxK},
                        .log_prob = {log_prob.data(), view.rows, kMaxK, kMaxK},
                        .scratch = AsBytes(scratch)},
                       {.threads = &pool})
                    .ok());
    return std::pair(token, log_prob);
  };
  for (Kernel kernel : {reference::TopKLogProb, cpu::TopKLogProb}) {
    const auto batch = run(kernel, View2<const float>{logits.data(), 4 * kDepths, kVocabulary, kVocabulary},
                           {params.data(), 4});
    EXPECT_EQ(
        run(kernel, {stored.data(), DType::kBF16, 4 * kDepths, kVocabulary, kVocabulary}, {params.data(), 4}),
        batch);
    for (int64_t stream = 0; stream < 4; ++stream) {
      const float* own = logits.data() + stream * kDepths * kVocabulary;
      const auto alone =
          run(kernel, View2<const float>{own, kDepths, kVocabulary, kVocabulary}, {&params[stream], 1});
      for (int64_t i = 0; i < kDepths * kMaxK; ++i) {
        const bool wanted = i / kMaxK < params[stream].depths && i % kMaxK < params[stream].k;
        EXPECT_EQ(batch.first[stream * kDepths * kMaxK + i], alone.first[i]);
        EXPECT_EQ(batch.second[stream * kDepths * kMaxK + i], alone.second[i]);
        EXPECT_EQ(alone.first[i] == TokenId{-7}, !wanted);
        EXPECT_EQ(alone.second[i] == 7.0f, !wanted);
      }
    }
  }
}

}  // namespace
}  // namespace arborist::kernels
