#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/sample_target/sample_target.h"
#include "kernels/sample_target/sampling_cases.h"
#include "kernels/testing/cuda_test.h"
#include "kernels/testing/small_shapes.h"

namespace arborist::kernels {
namespace {

using testing::CudaTest;
using testing::DeviceArray;
using testing::Small;
using testing::Thinned;

struct Drawn {
  std::vector<int32_t> chosen;
  std::vector<float> log_prob;
  std::vector<int32_t> error;
};

Batch Empty(int64_t vocabulary) {
  return {.vocabulary = vocabulary, .logits = {}, .position = {}, .params_index = {}, .params = {}};
}

Drawn OnHost(const Batch& batch) {
  const int64_t rows = batch.rows();
  Drawn drawn = {.chosen = std::vector<int32_t>(rows),
                 .log_prob = std::vector<float>(rows),
                 .error = std::vector<int32_t>(rows)};
  std::vector<TokenId> chosen(rows);
  std::vector<std::byte> memory(SampleTargetScratchBytes(batch.vocabulary, 2) + 64);
  auto* aligned = memory.data() + (64 - reinterpret_cast<uintptr_t>(memory.data()) % 64) % 64;
  ThreadPool pool(2);
  cpu::SampleTarget({.logits = {batch.logits.data(), rows, batch.vocabulary, batch.vocabulary},
                     .position = {batch.position.data(), rows},
                     .params_index = {batch.params_index.data(), rows},
                     .params = {batch.params.data(), static_cast<int64_t>(batch.params.size())},
                     .chosen = {chosen.data(), rows},
                     .log_prob = {drawn.log_prob.data(), rows},
                     .scratch = {aligned, static_cast<int64_t>(memory.size() - 64)},
                     .error = {drawn.error.data(), rows}},
                    {.threads = &pool})
      .IgnoreError();  // broken rows are in `error`
  for (int64_t row = 0; row < rows; ++row) {
    drawn.chosen[row] = Raw(chosen[row]);
  }
  return drawn;
}

class SampleTargetCudaTest : public CudaTest {
 protected:
  Drawn OnDevice(const Batch& batch, bool with_log_prob = true) {
    const int64_t rows = batch.rows();
    const DeviceArray<float> logits(batch.logits);
    const DeviceArray<int32_t> position(batch.position);
    const DeviceArray<int32_t> params_index(batch.params_index);
    const DeviceArray<SamplingParams> params(batch.params);
    const DeviceArray<TokenId> chosen(rows);
    const DeviceArray<float> log_prob(with_log_prob ? rows : 0);
    const DeviceArray<int32_t> error(rows);
    const DeviceArray<std::byte> scratch(
        static_cast<int64_t>(SampleTargetCudaScratchBytes(rows, batch.vocabulary)));
    const absl::Status status = cuda::SampleTarget({.logits = logits.const_view(rows, batch.vocabulary),
                                                    .position = position.const_view(),
                                                    .params_index = params_index.const_view(),
                                                    .params = params.const_view(),
                                                    .chosen = chosen.view(),
                                                    .log_prob = log_prob.view(),
                                                    .scratch = scratch.view(),
                                                    .error = error.view()},
                                                   stream());
    EXPECT_TRUE(status.ok()) << status;
    Finish();
    Drawn drawn = {.chosen = {}, .log_prob = log_prob.Read(), .error = error.Read()};
    for (const TokenId id : chosen.Read()) {
      drawn.chosen.push_back(Raw(id));
    }
    return drawn;
  }

  void ExpectTheHosts(const Batch& batch) {
    const Drawn want = OnHost(batch);
    const Drawn got = OnDevice(batch);
    EXPECT_EQ(got.error, want.error);
    for (int64_t row = 0; row < batch.rows(); ++row) {
      const SamplingParams& p = batch.params[batch.params_index[row]];
      ASSERT_EQ(got.chosen[row], want.chosen[row])
          << "row " << row << " vocabulary " << batch.vocabulary << " T " << p.temperature << " top_k "
          << p.top_k << " top_p " << p.top_p << " min_p " << p.min_p;
      // The sums differ in order and in exp's last places; the host's lanes round once for each of their ids.
      const float tolerance =
          2e-5f + 2e-6f * std::abs(want.log_prob[row]) + 1e-9f * static_cast<float>(batch.vocabulary);
      ASSERT_TRUE(std::abs(got.log_prob[row] - want.log_prob[row]) <= tolerance)
          << got.log_prob[row] << " and " << want.log_prob[row] << ", row " << row;
    }
    EXPECT_EQ(OnDevice(batch, false).chosen, want.chosen);
  }
};

Batch RandomBatch(Generator& generator, int64_t vocabulary, int rows) {
  Batch batch = Empty(vocabulary);
  for (int row = 0; row < rows; ++row) {
    batch.Add(generator.Row(vocabulary), static_cast<int32_t>(generator.Below(1u << 31)),
              generator.Params(vocabulary));
  }
  return batch;
}

TEST_F(SampleTargetCudaTest, IdsAreTheHostsForEveryKindOfRowAndParameters) {
  Generator generator;
  for (const int64_t vocabulary : Thinned({1, 2, 5, 17, 100, 1000, 4096, 4097, 9001}, 5)) {
    ExpectTheHosts(RandomBatch(generator, vocabulary, vocabulary > 500 ? Small(120, 10) : Small(250, 30)));
    if (HasFatalFailure()) {
      return;
    }
  }
  ExpectTheHosts(Empty(100));
}

TEST_F(SampleTargetCudaTest, IdsAreTheHostsAtTheVocabularyOfLargeModels) {
  Generator generator;
  ExpectTheHosts(RandomBatch(generator, Small(163840, 20000), Small(40, 1)));
  ExpectTheHosts(RandomBatch(generator, Small(40000, 9001),
                             Small(300, 2)));  // 300: a block counts more than the least part
}

TEST_F(SampleTargetCudaTest, OrdinaryParametersOverOrdinaryRowsGiveTheHostsIds) {
  Generator generator;
  Batch batch = Empty(50000);
  const SamplingParams kinds[] = {{.temperature = 1},
                                  {.temperature = 0.7f, .top_p = 0.9f},
                                  {.temperature = 1, .top_k = 50, .top_p = 0.95f},
                                  {.temperature = 0.6f, .min_p = 0.05f},
                                  {.temperature = 1.2f, .top_k = 20000, .top_p = 0.99f, .min_p = 1e-4f},
                                  {}};
  for (int row = 0; row < Small(60, 6); ++row) {
    std::vector<float> logits = generator.Row(50000);
    while (logits[0] == logits[1] || std::abs(logits[0]) > 100 || std::abs(logits[0]) < 1e-20f) {
      logits = generator.Row(50000);
    }
    SamplingParams params = kinds[row % 6];
    params.seed = generator.Below(1u << 31);
    batch.Add(logits, row, params);
  }
  ExpectTheHosts(batch);
}

// The top-k threshold lies in a bin far beyond that of the top-p threshold, and takes only some of its ids.
TEST_F(SampleTargetCudaTest, TopPCountsTheMassThatTopKLeavesWhereverItsThresholdLies) {
  Generator generator;
  for (const int64_t vocabulary : {100, 9001}) {
    Batch batch = Empty(vocabulary);
    for (int row = 0; row < Small(200, 12); ++row) {
      SamplingParams params = generator.Params(vocabulary);
      params.temperature = row % 2 == 0 ? 50.0f : 8.0f;
      params.top_k =
          static_cast<int32_t>(vocabulary - 1 - generator.Below(static_cast<uint32_t>(vocabulary) / 2));
      params.top_p = row % 3 == 0 ? 0.9f : 0.5f;
      batch.Add(generator.Row(vocabulary), row, params);
    }
    ExpectTheHosts(batch);
  }
}

TEST_F(SampleTargetCudaTest, ARowIsTheSameBitsAloneAndAmongOthers) {
  Generator generator;
  const int rows = Small(64, 3), vocabulary = Small(20000, 5000);
  const Batch batch = RandomBatch(generator, vocabulary, rows);
  const Drawn together = OnDevice(batch);
  for (const int row : {0, rows / 4, rows - 1}) {
    Batch alone = Empty(vocabulary);
    const auto begin = batch.logits.begin() + row * vocabulary;
    alone.Add({begin, begin + vocabulary}, batch.position[row], batch.params[row]);
    const Drawn got = OnDevice(alone);
    EXPECT_EQ(got.chosen[0], together.chosen[row]);
    EXPECT_EQ(std::bit_cast<uint32_t>(got.log_prob[0]), std::bit_cast<uint32_t>(together.log_prob[row]));
  }
}

TEST_F(SampleTargetCudaTest, ABrokenRowIsFlaggedAndSparesTheOthers) {
  Generator generator;
  const float infinity = std::numeric_limits<float>::infinity();
  for (const float bad : {std::nanf(""), infinity, -infinity}) {
    for (const int64_t id : Thinned({0, 4095, 4096, 8999}, 2)) {
      Batch batch = RandomBatch(generator, 9000, 6);
      batch.logits[9000 + id] = bad;
      const Drawn want = OnHost(batch);
      EXPECT_EQ(want.error, (std::vector<int32_t>{0, 1, 0, 0, 0, 0}));
      ExpectTheHosts(batch);
    }
  }
  for (const int32_t index : {-1, 6, 2147483647}) {
    Batch batch = RandomBatch(generator, 300, 6);
    const Drawn want = OnHost(batch);
    batch.params_index[4] = index;
    const Drawn got = OnDevice(batch);
    EXPECT_EQ(got.error, (std::vector<int32_t>{0, 0, 0, 0, 1, 0}));
    EXPECT_EQ(got.chosen[4], 0);
    EXPECT_EQ(got.chosen[5], want.chosen[5]);
  }
}

}  // namespace
}  // namespace arborist::kernels
