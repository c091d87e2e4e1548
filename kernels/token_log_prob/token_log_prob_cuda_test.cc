#include <cmath>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/sample_target/sample_target.h"
#include "kernels/testing/compare.h"
#include "kernels/testing/cuda_test.h"
#include "kernels/testing/random_tensor.h"
#include "kernels/testing/small_shapes.h"
#include "kernels/token_log_prob/log_prob_cases.h"
#include "kernels/top_k_log_prob/top_k_log_prob.h"

namespace arborist::kernels {
namespace {

using namespace testing;  // NOLINT: the test's vocabulary

class TokenLogProbCudaTest : public CudaTest {
 protected:
  std::vector<float> OnDevice(const LogProbCase& c) {
    const DeviceArray<float> logits(c.logits), log_prob(c.rows() * c.columns());
    const DeviceArray<TokenId> chosen(c.chosen), forced(c.forced), top(c.top);
    const DeviceArray<int32_t> top_count(c.top_count);
    const DeviceArray<std::byte> scratch(
        static_cast<int64_t>(TokenLogProbCudaScratchBytes(c.rows(), c.vocabulary)));
    TokenLogProbArgs args = c.Args(log_prob.data());
    args.logits.data = logits.data();
    args.chosen.data = chosen.data();
    args.forced.data = forced.data();
    args.top.data = top.data();
    args.top_count.data = top_count.data();
    args.scratch = scratch.view();
    const absl::Status status = cuda::TokenLogProb(args, stream());
    EXPECT_TRUE(status.ok()) << status;
    Finish();
    return log_prob.Read();
  }
};

std::vector<float> OnHost(const LogProbCase& c) {
  std::vector<float> log_prob = Poisoned(c.rows() * c.columns());
  ThreadPool pool(2);
  const absl::Status status = cpu::TokenLogProb(c.Args(log_prob.data()), {.threads = &pool});
  EXPECT_TRUE(status.ok()) << status;
  return log_prob;
}

TEST_F(TokenLogProbCudaTest, IsTheHostsForEveryShape) {
  Random random;
  SCOPED_TRACE(random.seed());
  for (const int64_t rows : {0, 1, 2, 17}) {
    for (const int64_t vocabulary : Thinned({1, 2, 17, 1000, 4095, 4096, 4097, 8192, 163840}, 4)) {
      for (const int64_t top_columns : {0, 1, 20, 200}) {
        const LogProbCase c = DrawLogProbCase(random, rows, vocabulary, top_columns, rows != 2);
        const std::vector<float> want = OnHost(c), got = OnDevice(c);
        for (size_t i = 0; i < want.size(); ++i) {
          // As sample_target.h says: sums in another order, exp by the device's own exp2.
          const float tolerance = 2e-5f + 2e-6f * std::abs(want[i]) + 1e-9f * static_cast<float>(vocabulary);
          ASSERT_TRUE(std::abs(got[i] - want[i]) <= tolerance)
              << got[i] << " and " << want[i] << ", element " << i << " of " << rows << " rows, vocabulary "
              << vocabulary;
          ASSERT_TRUE(want[i] != 0 || got[i] == 0 || vocabulary == 1 || std::abs(got[i]) < tolerance);
        }
      }
    }
  }
}

TEST_F(TokenLogProbCudaTest, ARowIsTheSameBitsAloneAndAmongOthers) {
  Random random;
  SCOPED_TRACE(random.seed());
  const LogProbCase c = DrawLogProbCase(random, Small(60, 5), Small(30000, 5000), 20, true);
  const std::vector<float> together = OnDevice(c);
  for (const int64_t r : {int64_t{0}, c.rows() / 2, c.rows() - 1}) {
    EXPECT_TRUE(SameBits(OnDevice(c.Alone(r)),
                         std::span<const float>(together).subspan(r * c.columns(), c.columns())));
  }
}

TEST_F(TokenLogProbCudaTest, TheChosenTokensHaveTheBitsOfSampleTarget) {
  Random random;
  SCOPED_TRACE(random.seed());
  for (const int64_t vocabulary : Thinned({17, 4096, 9001, 163840}, 2)) {
    const int64_t rows = Small(24, 6);
    LogProbCase c = DrawLogProbCase(random, rows, vocabulary, 0, false);
    std::vector<SamplingParams> params;
    std::vector<int32_t> index;
    for (int32_t r = 0; r < rows; ++r) {
      params.push_back({.temperature = r % 3 == 0 ? 0.0f : 1.5f,
                        .top_p = r % 3 == 1 ? 0.9f : 1.0f,
                        .seed = random.engine()()});
      index.push_back(r);
    }
    const DeviceArray<float> logits(c.logits), want(rows);
    const DeviceArray<int32_t> device_index(index), error(rows);
    const DeviceArray<SamplingParams> device_params(params);
    const DeviceArray<TokenId> chosen(rows);
    const DeviceArray<std::byte> scratch(
        static_cast<int64_t>(SampleTargetCudaScratchBytes(rows, vocabulary)));
    const absl::Status status = cuda::SampleTarget({.logits = logits.const_view(rows, vocabulary),
                                                    .position = device_index.const_view(),
                                                    .params_index = device_index.const_view(),
                                                    .params = device_params.const_view(),
                                                    .chosen = chosen.view(),
                                                    .log_prob = want.view(),
                                                    .scratch = scratch.view(),
                                                    .error = error.view()},
                                                   stream());
    ASSERT_TRUE(status.ok()) << status;
    Finish();
    c.chosen = chosen.Read();
    EXPECT_TRUE(SameBits(OnDevice(c), want.Read())) << "vocabulary " << vocabulary;
  }
}

// How a step gets its top lists: top_k_log_prob with a stream a row gives the ids, this kernel the values.
TEST_F(TokenLogProbCudaTest, IdsOfTopKWithAStreamARowAreTheHostsAndTheFirstHasTheBitsOfTheGreedyChoice) {
  Random random;
  SCOPED_TRACE(random.seed());
  constexpr int64_t kMost = 20;
  const int64_t rows = Small(33, 6), vocabulary = Small(163840, 9001);
  LogProbCase c = DrawLogProbCase(random, rows, vocabulary, kMost, false);
  for (int64_t i = 0; i < rows / 2 * vocabulary; ++i) {
    c.logits[i] = i < vocabulary ? -0.5f : std::round(c.logits[i]);  // nothing but ties, many ties
  }
  std::vector<TopKParams> params;
  for (int64_t r = 0; r < rows; ++r) {
    c.top_count[r] = r < 2 ? kMost : static_cast<int32_t>(random.Uniform(0, kMost));
    params.push_back({.depths = 1, .k = c.top_count[r]});
  }
  const auto top_of = [&](auto top_k, const float* logits, const TopKParams* with, TokenId* token,
                          float* edges, View1<std::byte> scratch, StreamView on) {
    const absl::Status status = top_k({.logits = View2<const float>{logits, rows, vocabulary, vocabulary},
                                       .params = {with, rows},
                                       .token = {token, rows, kMost, kMost},
                                       .log_prob = {edges, rows, kMost, kMost},
                                       .scratch = scratch},
                                      on);
    EXPECT_TRUE(status.ok()) << status;
  };
  c.top.assign(rows * kMost, TokenId{-1});
  std::vector<float> edges(rows * kMost);
  std::vector<std::byte> scratch(TopKLogProbScratchBytes(rows, vocabulary));
  ThreadPool pool(2);
  top_of(cpu::TopKLogProb, c.logits.data(), params.data(), c.top.data(), edges.data(),
         {scratch.data(), static_cast<int64_t>(scratch.size())}, {.threads = &pool});
  const DeviceArray<float> logits(c.logits), device_edges(rows * kMost);
  const DeviceArray<TopKParams> device_params(params);
  const DeviceArray<TokenId> top(rows * kMost);  // -1 where nothing is written
  const DeviceArray<std::byte> device_scratch(
      static_cast<int64_t>(TopKLogProbCudaScratchBytes(rows, vocabulary)));
  top_of(cuda::TopKLogProb, logits.data(), device_params.data(), top.data(), device_edges.data(),
         device_scratch.view(), stream());
  Finish();
  EXPECT_EQ(top.Read(), c.top);
  for (int64_t r = 0; r < rows; ++r) {
    c.chosen[r] = c.top_count[r] > 0 ? c.top[r * kMost] : TokenId{-1};
  }
  const std::vector<float> got = OnDevice(c);
  for (int64_t r = 0; r < rows; ++r) {
    const float* values = got.data() + r * c.columns();
    for (int64_t i = 1; i <= c.top_count[r]; ++i) {
      EXPECT_TRUE(i == 1 ? values[1] == values[0] : values[i] <= values[i - 1]) << "row " << r;
    }
  }
}

TEST_F(TokenLogProbCudaTest, BrokenRowsAndTokensBeyondTheVocabularyAreZeroAndSpareTheOthers) {
  Random random;
  SCOPED_TRACE(random.seed());
  for (const float bad : {std::nanf(""), INFINITY, -INFINITY}) {
    for (const int64_t at : {0, 4095, 4096, 8999}) {
      LogProbCase c = DrawLogProbCase(random, 3, 9000, 5, true);
      std::vector<float> want = OnDevice(c);
      std::fill_n(want.begin() + c.columns(), c.columns(), 0.0f);
      c.logits[9000 + at] = bad;
      EXPECT_TRUE(SameBits(OnDevice(c), want)) << bad << " at " << at;
      c.forced[2] = TokenId{9000};
      want[2 * c.columns()] = 0;
      EXPECT_TRUE(SameBits(OnDevice(c), want));
    }
  }
}

}  // namespace
}  // namespace arborist::kernels
