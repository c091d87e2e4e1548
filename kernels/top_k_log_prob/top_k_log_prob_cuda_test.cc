#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "kernels/testing/cuda_test.h"
#include "kernels/testing/random_tensor.h"
#include "kernels/testing/small_shapes.h"
#include "kernels/top_k_log_prob/top_k_log_prob.h"

namespace arborist::kernels {
namespace {

using testing::CudaTest;
using testing::DeviceArray;
using testing::Random;
using testing::Small;
using testing::Thinned;

constexpr TokenId kPoison{-1};  // what DeviceArray starts with

struct Batch {
  int64_t rows;
  int64_t vocabulary;
  int64_t stride;
  int64_t max_k;
  DType dtype;
  std::vector<TopKParams> params;
  std::vector<float> logits;  // values that dtype holds exactly

  int64_t depths() const { return rows / static_cast<int64_t>(params.size()); }
};

struct Candidates {
  std::vector<TokenId> token;
  std::vector<float> log_prob;
};

enum Kind { kNormal, kTies, kEqual, kZeros, kExtreme, kRising, kFalling, kKinds };

std::vector<float> RandomRow(Random& random, int64_t vocabulary, int kind) {
  std::vector<float> row(static_cast<size_t>(vocabulary));
  for (int64_t v = 0; v < vocabulary; ++v) {
    const float x = random.Normal(4);
    const auto at = static_cast<float>(v) / static_cast<float>(vocabulary);
    row[v] = kind == kNormal    ? x
             : kind == kTies    ? std::round(x)
             : kind == kEqual   ? -3.0f
             : kind == kZeros   ? (random.Uniform(0, 1) == 0 ? 0.0f : -0.0f)
             : kind == kExtreme ? (random.Uniform(0, 1) == 0 ? 3e38f : -3e38f)
             : kind == kRising  ? 30 * at
                                : 30 - 30 * at;
  }
  return row;
}

Batch RandomBatch(Random& random, int64_t streams, int64_t depths, int64_t vocabulary, DType dtype, int kind,
                  float temperature, int64_t k) {
  Batch batch = {.rows = streams * depths,
                 .vocabulary = vocabulary,
                 .stride = vocabulary + random.Uniform(0, 1) * random.Uniform(0, 9),
                 .max_k = k,
                 .dtype = dtype,
                 .params = {},
                 .logits = {}};
  for (int64_t stream = 0; stream < streams; ++stream) {
    batch.params.push_back({.temperature = stream % 3 == 2 ? 0.0f : temperature,
                            .beta = stream % 2 == 0 ? 1.0f : 0.8f,
                            .seed = random.engine()(),
                            .sample_index = static_cast<uint32_t>(random.Uniform(0, 3)),
                            .first_position = static_cast<int32_t>(random.Uniform(0, 100000)),
                            .depths = static_cast<int32_t>(stream == 0 ? depths : random.Uniform(0, depths)),
                            .k = static_cast<int32_t>(stream == 0 ? k : random.Uniform(0, k))});
  }
  for (int64_t row = 0; row < batch.rows; ++row) {
    std::vector<float> values = RandomRow(random, vocabulary, kind);
    values.resize(static_cast<size_t>(batch.stride), std::nanf(""));
    for (float& value : values) {
      value = dtype == DType::kBF16 ? ToFloat(ToBFloat16(value)) : value;
    }
    batch.logits.insert(batch.logits.end(), values.begin(), values.end());
  }
  return batch;
}

Candidates OnHost(const Batch& b) {
  Candidates c = {.token = std::vector<TokenId>(b.rows * b.max_k, kPoison),
                  .log_prob = std::vector<float>(b.rows * b.max_k, std::nanf(""))};
  std::vector<std::byte> scratch(TopKLogProbScratchBytes(b.rows, b.vocabulary));
  ThreadPool pool(2);
  const absl::Status status =
      cpu::TopKLogProb({.logits = View2<const float>{b.logits.data(), b.rows, b.vocabulary, b.stride},
                        .params = {b.params.data(), static_cast<int64_t>(b.params.size())},
                        .token = {c.token.data(), b.rows, b.max_k, b.max_k},
                        .log_prob = {c.log_prob.data(), b.rows, b.max_k, b.max_k},
                        .scratch = {scratch.data(), static_cast<int64_t>(scratch.size())}},
                       {.threads = &pool});
  EXPECT_TRUE(status.ok()) << status;
  return c;
}

class TopKLogProbCudaTest : public CudaTest {
 protected:
  Candidates OnDevice(const Batch& b) {
    std::vector<BFloat16> stored(b.logits.size());
    std::transform(b.logits.begin(), b.logits.end(), stored.begin(), ToBFloat16);
    const DeviceArray<float> wide(b.logits);
    const DeviceArray<BFloat16> narrow(stored);
    const DeviceArray<TopKParams> params(b.params);
    const DeviceArray<TokenId> token(b.rows * b.max_k);
    const DeviceArray<float> log_prob(b.rows * b.max_k);
    const DeviceArray<std::byte> scratch(
        static_cast<int64_t>(TopKLogProbCudaScratchBytes(b.rows, b.vocabulary)));
    const void* data = b.dtype == DType::kBF16 ? static_cast<const void*>(narrow.data()) : wide.data();
    const absl::Status status = cuda::TopKLogProb({.logits = {data, b.dtype, b.rows, b.vocabulary, b.stride},
                                                   .params = params.const_view(),
                                                   .token = token.view(b.rows, b.max_k),
                                                   .log_prob = log_prob.view(b.rows, b.max_k),
                                                   .scratch = scratch.view()},
                                                  stream());
    EXPECT_TRUE(status.ok()) << status;
    Finish();
    return {token.Read(), log_prob.Read()};
  }

  void ExpectTheHosts(const Batch& b) {
    const Candidates want = OnHost(b);
    const Candidates got = OnDevice(b);
    for (int64_t row = 0; row < b.rows; ++row) {
      for (int64_t i = row * b.max_k; i < (row + 1) * b.max_k; ++i) {
        ASSERT_EQ(got.token[i], want.token[i]) << "row " << row << " rank " << i - row * b.max_k;
        const TopKParams& params = b.params[row / b.depths()];
        if (row % b.depths() >= params.depths || i - row * b.max_k >= params.k) {
          ASSERT_TRUE(std::isnan(got.log_prob[i])) << "written where nothing is wanted";
          continue;
        }
        // The ids decide the numerator to the bit; the sums differ in order and in exp's last places, and the
        // host's lanes round once for each of their ids.
        const float tolerance =
            2e-5f + 2e-6f * std::abs(want.log_prob[i]) + 1e-9f * static_cast<float>(b.vocabulary);
        ASSERT_TRUE(std::abs(got.log_prob[i] - want.log_prob[i]) <= tolerance)
            << got.log_prob[i] << " and " << want.log_prob[i] << ", row " << row;
        ASSERT_LE(got.log_prob[i], 0);
        ASSERT_TRUE(i == row * b.max_k || got.log_prob[i] <= got.log_prob[i - 1]);
      }
    }
  }
};

TEST_F(TopKLogProbCudaTest, IdsAreTheHostsForEveryShapeKindAndNoise) {
  Random random;
  SCOPED_TRACE(random.seed());
  for (const int64_t vocabulary :
       Thinned({1, 2, 17, 64, 100, 2048, 8192, 8193, 16384, 16391, Small(40000, 20000)}, 3)) {
    for (int kind = 0; kind < kKinds; kind += Small(1, 6)) {
      for (const DType dtype : {DType::kF32, DType::kBF16}) {
        for (const float temperature : Thinned({0.0f, 0.7f, 1e-38f}, 2)) {
          const int64_t k =
              std::min<int64_t>(vocabulary, random.Uniform(0, 2) == 0 ? 64 : random.Uniform(1, 40));
          SCOPED_TRACE(::testing::Message() << "vocabulary " << vocabulary << " kind " << kind << " "
                                            << Name(dtype) << " T " << temperature << " k " << k);
          ExpectTheHosts(RandomBatch(random, random.Uniform(1, 3), random.Uniform(1, 3), vocabulary, dtype,
                                     kind, temperature, k));
          if (HasFatalFailure()) {
            return;
          }
        }
      }
    }
  }
}

TEST_F(TopKLogProbCudaTest, IdsAreTheHostsAtTheVocabularyOfLargeModels) {
  Random random;
  SCOPED_TRACE(random.seed());
  for (int kind = 0; kind < kKinds; kind += Small<int>(1, kKinds)) {
    for (const float temperature : {0.0f, 1.0f}) {
      ExpectTheHosts(RandomBatch(random, 1, Small(7, 2), 163840, DType::kBF16, kind, temperature, 64));
    }
  }
  ExpectTheHosts(RandomBatch(random, 1, 2, 129280, DType::kF32, kNormal, 0.6f, 32));
}

TEST_F(TopKLogProbCudaTest, ARowIsTheSameBitsAloneAndAmongManyOthers) {
  Random random;
  SCOPED_TRACE(random.seed());
  const int64_t vocabulary = Small(70000, 20000);
  const int64_t rows = Small(600, 12);  // 600: enough that a block goes through several rounds
  for (const float temperature : {0.0f, 0.9f}) {
    Batch one = RandomBatch(random, 1, 1, vocabulary, DType::kBF16, kNormal, temperature, 64);
    one.stride = vocabulary;
    one.logits.resize(vocabulary);
    const Candidates alone = OnDevice(one);
    Batch many = one;
    many.rows = rows;
    many.params.assign(rows, one.params[0]);
    many.logits.resize(rows * vocabulary);
    for (int64_t i = 0; i < rows * vocabulary; ++i) {
      many.logits[i] = one.logits[(i + (i / vocabulary % 3) * 77) % vocabulary];
    }
    const Candidates together = OnDevice(many);
    for (const int64_t row : {int64_t{0}, int64_t{3}, rows / 2, rows - 3}) {  // the rows that are the one row
      for (int64_t i = 0; i < 64; ++i) {
        ASSERT_EQ(together.token[row * 64 + i], alone.token[i]);
        ASSERT_EQ(std::bit_cast<uint32_t>(together.log_prob[row * 64 + i]),
                  std::bit_cast<uint32_t>(alone.log_prob[i]));
      }
    }
  }
}

// With so many rows one block reads and finishes a row. All but three rows are padding.
class TopKOfOneBlockCudaTest : public TopKLogProbCudaTest {
 protected:
  void ExpectTheBitsOfARowAlone(int64_t rows, int64_t vocabulary, const std::vector<int>& kinds);
};

void TopKOfOneBlockCudaTest::ExpectTheBitsOfARowAlone(int64_t rows, int64_t vocabulary,
                                                      const std::vector<int>& kinds) {
  Random random;
  SCOPED_TRACE(random.seed());
  constexpr int64_t kK = 64;
  const DeviceArray<BFloat16> logits(rows * vocabulary);
  const DeviceArray<TokenId> token(rows * kK);
  const DeviceArray<float> log_prob(rows * kK);
  const DeviceArray<std::byte> scratch(static_cast<int64_t>(TopKLogProbCudaScratchBytes(rows, vocabulary)));
  for (const int kind : kinds) {
    for (const float temperature : {0.0f, 0.8f}) {
      SCOPED_TRACE(::testing::Message() << "kind " << kind << " T " << temperature);
      Batch one = RandomBatch(random, 1, 1, vocabulary, DType::kBF16, kind, temperature, kK);
      one.stride = vocabulary;
      one.logits.resize(vocabulary);
      const Candidates alone = OnDevice(one);
      std::vector<BFloat16> stored(vocabulary);
      std::transform(one.logits.begin(), one.logits.end(), stored.begin(), ToBFloat16);
      std::vector<TopKParams> params(rows);
      for (const int64_t row : {int64_t{0}, rows / 2, rows - 1}) {
        params[row] = one.params[0];
        ASSERT_EQ(cudaMemcpy(logits.data() + row * vocabulary, stored.data(), vocabulary * sizeof(BFloat16),
                             cudaMemcpyHostToDevice),
                  cudaSuccess);
      }
      const DeviceArray<TopKParams> on_device(params);
      const absl::Status status =
          cuda::TopKLogProb({.logits = {logits.data(), DType::kBF16, rows, vocabulary, vocabulary},
                             .params = on_device.const_view(),
                             .token = token.view(rows, kK),
                             .log_prob = log_prob.view(rows, kK),
                             .scratch = scratch.view()},
                            stream());
      ASSERT_TRUE(status.ok()) << status;
      Finish();
      const Candidates together = {token.Read(), log_prob.Read()};
      for (const int64_t row : {int64_t{0}, rows / 2, rows - 1}) {
        for (int64_t i = 0; i < kK; ++i) {
          ASSERT_EQ(together.token[row * kK + i], alone.token[i]) << "row " << row << " rank " << i;
          ASSERT_EQ(std::bit_cast<uint32_t>(together.log_prob[row * kK + i]),
                    std::bit_cast<uint32_t>(alone.log_prob[i]));
        }
      }
    }
  }
}

TEST_F(TopKOfOneBlockCudaTest, ARowOfEveryKindIsTheSameBitsWhenOneBlockGoesThroughAllOfIt) {
  std::vector<int> kinds(Small<int>(kKinds, 1));
  std::iota(kinds.begin(), kinds.end(), 0);
  ExpectTheBitsOfARowAlone(Small(1024, 8), 163840, kinds);
}

constexpr int64_t kMostIds = int64_t{1} << 19;

TEST_F(TopKOfOneBlockCudaTest, TheLargestVocabularyIsTheHostsIdsAndARowIsTheSameBitsInOneBlock) {
  Random random;
  SCOPED_TRACE(random.seed());
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    ExpectTheHosts(RandomBatch(random, 3, 1, kMostIds, dtype, kNormal, 0.7f, 64));
  }
  ExpectTheBitsOfARowAlone(Small(1024, 8), kMostIds, {kNormal, kTies});
}

TEST_F(TopKLogProbCudaTest, AVocabularyBeyondTheLargestIsRefused) {
  const DeviceArray<TopKParams> params(std::vector<TopKParams>(1));
  const DeviceArray<TokenId> token(1);
  const DeviceArray<float> log_prob(1);
  const DeviceArray<std::byte> scratch(1);
  constexpr int64_t kIds = kMostIds + 1;
  EXPECT_EQ(cuda::TopKLogProb({.logits = {scratch.data(), DType::kBF16, 1, kIds, kIds},
                               .params = params.const_view(),
                               .token = token.view(1, 1),
                               .log_prob = log_prob.view(1, 1),
                               .scratch = scratch.view()},
                              stream())
                .message(),
            "logits.columns=524289, expected at most 524288 on CUDA");
}

// Rows of one part each, more than blocks are launched to finish them.
TEST_F(TopKLogProbCudaTest, BlocksFinishManyShortRowsOneAfterAnother) {
  Random random;
  SCOPED_TRACE(random.seed());
  for (const int kind : Thinned({kNormal, kTies, kEqual}, 2)) {
    const Batch batch = RandomBatch(random, Small(600, 300), 1, 8192, DType::kBF16, kind, 0.8f, 64);
    Batch noisy = batch;
    for (TopKParams& params : noisy.params) {
      params.temperature = 0.8f;
      params.depths = 1;
      params.k = std::max(params.k, 1);
    }
    ExpectTheHosts(batch);
    ExpectTheHosts(noisy);
  }
}

TEST_F(TopKLogProbCudaTest, NoStreamsNoDepthsAndNoCandidatesAreFine) {
  Random random;
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    const Candidates none = OnDevice({.rows = 0,
                                      .vocabulary = 100,
                                      .stride = 100,
                                      .max_k = 5,
                                      .dtype = dtype,
                                      .params = {},
                                      .logits = {}});
    EXPECT_TRUE(none.token.empty() && none.log_prob.empty());
    EXPECT_TRUE(OnDevice(RandomBatch(random, 3, 0, 100, dtype, kNormal, 0.7f, 5)).token.empty());
    Batch nothing_wanted = RandomBatch(random, 2, 3, 5000, dtype, kNormal, 0.7f, 5);
    nothing_wanted.params[0].k = 0;
    nothing_wanted.params[1].depths = 0;
    ExpectTheHosts(nothing_wanted);
  }
}

TEST_F(TopKLogProbCudaTest, ANonFiniteLogitMakesItsRowNanAndSparesTheOthers) {
  Random random;
  SCOPED_TRACE(random.seed());
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    for (const float temperature : {0.0f, 1.0f}) {
      for (const float bad : {std::nanf(""), INFINITY, -INFINITY}) {
        for (const int64_t at : Thinned({0, 1023, 8191, 8192, 19999}, 2)) {
          Batch batch = RandomBatch(random, 1, 3, 20000, dtype, kNormal, temperature, 9);
          const Candidates want = OnDevice(batch);
          batch.logits[batch.stride + at] = bad;
          const Candidates got = OnDevice(batch);
          for (int64_t i = 0; i < 27; ++i) {
            const bool broken = i / 9 == 1;
            ASSERT_EQ(got.token[i], broken ? TokenId{0} : want.token[i]);
            ASSERT_EQ(std::isnan(got.log_prob[i]), broken) << "value " << bad << " at " << at;
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace arborist::kernels
