#include "kernels/token_log_prob/token_log_prob.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <vector>

#include "kernels/sample_target/sample_target.h"
#include "kernels/testing/compare.h"
#include "kernels/testing/random_tensor.h"
#include "kernels/token_log_prob/log_prob_cases.h"
#include "kernels/top_k_log_prob/top_k_log_prob.h"

namespace arborist::kernels {
namespace {

using testing::Poisoned;
using testing::Random;
using testing::SameBits;

using Kernel = absl::Status (*)(const TokenLogProbArgs&, StreamView);

std::vector<float> LogProbs(Kernel kernel, const LogProbCase& c, StreamView stream) {
  std::vector<float> log_prob = Poisoned(c.rows() * c.columns());
  const absl::Status status = kernel(c.Args(log_prob.data()), stream);
  EXPECT_TRUE(status.ok()) << status;
  return log_prob;
}

TEST(TokenLogProbTest, EqualsTheOracleBitForBitForAnyThreadsRowsAndIsa) {
  Random random;
  SCOPED_TRACE(random.seed());
  for (const int64_t rows : {0, 1, 2, 17}) {
    for (const int64_t vocabulary : {1, 15, 16, 17, 1000, 4096}) {
      for (const int64_t top_columns : {0, 1, 20}) {
        const LogProbCase c = DrawLogProbCase(random, rows, vocabulary, top_columns, rows != 2);
        const std::vector<float> want = LogProbs(reference::TokenLogProb, c, {});
        testing::ForEveryIsaAndThreadCount(
            [&](StreamView stream) { EXPECT_TRUE(SameBits(LogProbs(cpu::TokenLogProb, c, stream), want)); });
        if (rows > 0) {
          const int64_t r = random.Uniform(0, rows - 1);
          ThreadPool pool(1);
          EXPECT_TRUE(SameBits(LogProbs(cpu::TokenLogProb, c.Alone(r), {.threads = &pool}),
                               std::span<const float>(want).subspan(r * c.columns(), c.columns())));
        }
      }
    }
  }
}

TEST(TokenLogProbTest, IsALogSoftmaxOfTheTokensAskedFor) {
  Random random;
  SCOPED_TRACE(random.seed());
  LogProbCase c = DrawLogProbCase(random, 3, 700, 2, true);
  c.chosen = {TokenId{4}, TokenId{5}, TokenId{-1}};
  c.forced = {TokenId{-1}, TokenId{6}, TokenId{-1}};
  c.top = {TokenId{8}, TokenId{9}, TokenId{10}, TokenId{11}, TokenId{-1}, TokenId{12}};
  c.top_count = {2, 1, 2};
  const int64_t asked[9] = {4, 8, 9, 6, 10, -1, -1, -1, 12};
  ThreadPool pool(1);
  const std::vector<float> got = LogProbs(cpu::TokenLogProb, c, {.threads = &pool});
  for (int64_t i = 0; i < 9; ++i) {
    const float* row = c.logits.data() + i / 3 * 700;
    double sum = 0;
    for (int64_t v = 0; v < 700; ++v) {
      sum += std::exp(static_cast<double>(row[v]));
    }
    const double want = asked[i] < 0 ? 0 : static_cast<double>(row[asked[i]]) - std::log(sum);
    // Roundings of values below 64, and of a sum of 700 terms in 16 lanes.
    EXPECT_TRUE(std::abs(static_cast<double>(got[i]) - want) <= 2e-5) << "element " << i;
  }
}

std::vector<std::byte> Scratch(size_t bytes) { return std::vector<std::byte>(bytes + 64); }
View1<std::byte> Aligned(std::vector<std::byte>& memory) {
  const auto skip = static_cast<int64_t>((64 - reinterpret_cast<uintptr_t>(memory.data()) % 64) % 64);
  return {memory.data() + skip, static_cast<int64_t>(memory.size()) - 64};
}

TEST(TokenLogProbTest, TheChosenTokensHaveTheBitsOfSampleTarget) {
  Random random;
  SCOPED_TRACE(random.seed());
  ThreadPool pool(2);
  for (const int64_t vocabulary : {1, 17, 4096, 9001}) {
    constexpr int64_t kRows = 12;
    LogProbCase c = DrawLogProbCase(random, kRows, vocabulary, 0, false);
    std::vector<SamplingParams> params;
    std::vector<int32_t> position, index;
    for (int32_t r = 0; r < kRows; ++r) {
      params.push_back({.temperature = r % 3 == 0 ? 0.0f : 1.5f,
                        .top_p = r % 3 == 1 ? 0.9f : 1.0f,
                        .seed = random.engine()()});
      position.push_back(r);
      index.push_back(r);
    }
    std::vector<float> want = Poisoned(kRows);
    std::vector<std::byte> scratch = Scratch(SampleTargetScratchBytes(vocabulary, 2));
    const absl::Status status = cpu::SampleTarget({.logits = {c.logits.data(), kRows, vocabulary, vocabulary},
                                                   .position = {position.data(), kRows},
                                                   .params_index = {index.data(), kRows},
                                                   .params = {params.data(), kRows},
                                                   .chosen = {c.chosen.data(), kRows},
                                                   .log_prob = {want.data(), kRows},
                                                   .scratch = Aligned(scratch)},
                                                  {.threads = &pool});
    ASSERT_TRUE(status.ok()) << status;
    EXPECT_TRUE(SameBits(LogProbs(cpu::TokenLogProb, c, {.threads = &pool}), want));
  }
}

// How a step gets its top lists: top_k_log_prob with a stream a row gives the ids, this kernel the values.
TEST(TokenLogProbTest, IdsOfTopKWithAStreamARowGiveListsInOrderWithTiesToTheLowerId) {
  Random random;
  SCOPED_TRACE(random.seed());
  ThreadPool pool(2);
  constexpr int64_t kRows = 6, kVocabulary = 3000, kMost = 20;
  LogProbCase c = DrawLogProbCase(random, kRows, kVocabulary, kMost, false);
  for (int64_t i = 0; i < kRows * kVocabulary; ++i) {
    c.logits[i] = i < 3 * kVocabulary ? std::round(c.logits[i]) : c.logits[i];  // many ties
  }
  std::fill_n(c.logits.begin(), kVocabulary, -0.0f);  // nothing but ties
  c.top_count = {20, 20, 7, 20, 1, 0};
  std::vector<TopKParams> params;
  for (const int32_t k : c.top_count) {
    params.push_back({.depths = 1, .k = k});
  }
  std::vector<float> edges(kRows * kMost);
  std::vector<std::byte> scratch = Scratch(TopKLogProbScratchBytes(kRows, kVocabulary));
  std::fill(c.top.begin(), c.top.end(), TokenId{-7});
  const absl::Status status =
      cpu::TopKLogProb({.logits = View2<const float>{c.logits.data(), kRows, kVocabulary, kVocabulary},
                        .params = {params.data(), kRows},
                        .token = {c.top.data(), kRows, kMost, kMost},
                        .log_prob = {edges.data(), kRows, kMost, kMost},
                        .scratch = Aligned(scratch)},
                       {.threads = &pool});
  ASSERT_TRUE(status.ok()) << status;
  const std::vector<float> got = LogProbs(cpu::TokenLogProb, c, {.threads = &pool});
  for (int64_t r = 0; r < kRows; ++r) {
    const float* logits = c.logits.data() + r * kVocabulary;
    const TokenId* top = c.top.data() + r * kMost;
    const float* values = got.data() + r * (1 + kMost) + 1;
    for (int32_t i = 0; i < c.top_count[r]; ++i) {
      // As many ids as stand before it in the list are better: a larger logit, or an equal one and a lower
      // id.
      int64_t better = 0;
      for (int32_t v = 0; v < kVocabulary; ++v) {
        better += logits[v] > logits[Raw(top[i])] || (logits[v] == logits[Raw(top[i])] && v < Raw(top[i]));
      }
      EXPECT_EQ(better, i) << "row " << r;
      EXPECT_TRUE(i == 0 || values[i] <= values[i - 1]);
    }
    for (int64_t i = c.top_count[r]; i < kMost; ++i) {
      EXPECT_EQ(top[i], TokenId{-7});
      EXPECT_EQ(std::bit_cast<uint32_t>(values[i]), 0u);
    }
  }
}

TEST(TokenLogProbTest, ARowWithALogitThatIsNotFiniteHasZerosAndSparesTheOthers) {
  Random random;
  SCOPED_TRACE(random.seed());
  ThreadPool pool(1);
  for (const float bad : {std::nanf(""), INFINITY, -INFINITY}) {
    LogProbCase c = DrawLogProbCase(random, 3, 100, 4, true);
    std::vector<float> want = LogProbs(cpu::TokenLogProb, c, {.threads = &pool});
    std::fill_n(want.begin() + c.columns(), c.columns(), 0.0f);
    c.logits[100 + random.Uniform(0, 99)] = bad;
    EXPECT_TRUE(SameBits(LogProbs(cpu::TokenLogProb, c, {.threads = &pool}), want));
    EXPECT_TRUE(SameBits(LogProbs(reference::TokenLogProb, c, {}), want));
  }
}

TEST(TokenLogProbTest, WrongShapesAndContentsAreRefusedByName) {
  Random random;
  const auto message = [&](auto change) {
    LogProbCase c = DrawLogProbCase(random, 2, 10, 3, true);
    c.chosen = c.forced = {TokenId{1}, TokenId{2}};
    std::vector<float> log_prob(2 * 4);
    change(c);
    return std::string(ValidateTokenLogProb(c.Args(log_prob.data())).message());
  };
  EXPECT_EQ(message([](LogProbCase&) {}), "");
  EXPECT_EQ(message([](LogProbCase& c) { c.chosen[1] = TokenId{10}; }),
            "chosen[1]=10, expected an id below 10, or -1");
  EXPECT_EQ(message([](LogProbCase& c) { c.forced[0] = TokenId{99}; }),
            "forced[0]=99, expected an id below 10, or -1");
  EXPECT_EQ(message([](LogProbCase& c) { c.forced.pop_back(); }),
            "forced.size=1, expected 0 or logits.rows=2");
  EXPECT_EQ(message([](LogProbCase& c) { c.top_count[0] = 4; }), "top_count[0]=4, expected 0..3");
  EXPECT_EQ(message([](LogProbCase& c) { c.top_count.pop_back(); }),
            "top_count.size=1, expected 2, one a row where top has columns");
  EXPECT_EQ(message([](LogProbCase& c) { c.top_count[1] = 1, c.top[3] = TokenId{10}; }),
            "top[1][0]=10, expected an id below 10, or -1");
}

}  // namespace
}  // namespace arborist::kernels
