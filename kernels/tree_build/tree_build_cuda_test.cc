#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cfloat>
#include <cmath>
#include <numeric>
#include <vector>

#include "kernels/testing/cuda_test.h"
#include "kernels/testing/random_tensor.h"
#include "kernels/testing/small_shapes.h"
#include "kernels/tree_build/tree_build.h"

namespace arborist::kernels {
namespace {

using testing::CudaTest;
using testing::DeviceArray;
using testing::Random;
using testing::Small;
using testing::Thinned;

struct Batch {
  int64_t depths;
  int64_t k;
  int64_t width;
  std::vector<TreeBuildParams> params;
  std::vector<TokenId> token;
  std::vector<float> log_prob;

  int64_t streams() const { return static_cast<int64_t>(params.size()); }
  int64_t rows() const { return streams() * depths; }
};

struct Built {
  std::vector<TokenId> token;
  std::vector<int32_t> parent;
  std::vector<float> score;
  std::vector<int32_t> nodes;
  std::vector<int32_t> error;
};

// kind 0: a softmax's tail; 1: coarse steps, so that many scores tie; 2: nearly all equal; 3: magnitudes far
// apart, so that sums round and leave the float range; 4: all zero; 5: so close that only the last bits
// differ.
std::vector<float> RandomRow(Random& random, int64_t k, int kind) {
  std::vector<float> row(static_cast<size_t>(k));
  for (float& value : row) {
    const float x = std::abs(random.Normal(3));
    value = kind == 0   ? -x
            : kind == 1 ? -std::round(x)
            : kind == 2 ? (random.Uniform(0, 20) == 0 ? -1e30f : -1.0f)
            : kind == 3 ? -std::pow(10.0f, static_cast<float>(random.Uniform(-40, 38)))
            : kind == 4 ? 0.0f
                        : -0.5f - 1e-6f * x;
  }
  std::sort(row.begin(), row.end(), std::greater<>());
  return row;
}

Batch RandomBatch(Random& random, int64_t streams, int64_t depths, int64_t k, int64_t max_budget, int kind) {
  Batch batch = {
      .depths = depths, .k = k, .width = max_budget + 1, .params = {}, .token = {}, .log_prob = {}};
  std::vector<int32_t> ids(1000);
  std::iota(ids.begin(), ids.end(), 0);
  for (int64_t stream = 0; stream < streams; ++stream) {
    const bool full = stream % 2 == 0;
    batch.params.push_back(
        {.root = TokenId{static_cast<int32_t>(stream + 5)},
         .depths = static_cast<int32_t>(full ? depths : random.Uniform(0, depths)),
         .k = static_cast<int32_t>(full ? k : random.Uniform(1, k)),
         .budget = static_cast<int32_t>(full ? max_budget : random.Uniform(0, max_budget))});
    for (int64_t depth = 0; depth < depths; ++depth) {
      std::shuffle(ids.begin(), ids.end(), random.engine());
      for (int64_t rank = 0; rank < k; ++rank) {
        batch.token.push_back(TokenId{ids[rank]});
      }
      const std::vector<float> row = RandomRow(random, k, kind);
      batch.log_prob.insert(batch.log_prob.end(), row.begin(), row.end());
    }
  }
  return batch;
}

Built OnHost(const Batch& b) {
  const size_t size = static_cast<size_t>(b.streams() * b.width);
  Built built = {.token = std::vector<TokenId>(size),
                 .parent = std::vector<int32_t>(size),
                 .score = std::vector<float>(size),
                 .nodes = std::vector<int32_t>(b.streams()),
                 .error = std::vector<int32_t>(b.streams())};
  const absl::Status status =
      cpu::TreeBuild({.params = {b.params.data(), b.streams()},
                      .token = {b.token.data(), b.rows(), b.k, b.k},
                      .log_prob = {b.log_prob.data(), b.rows(), b.k, b.k},
                      .out_token = {built.token.data(), b.streams(), b.width, b.width},
                      .out_parent = {built.parent.data(), b.streams(), b.width, b.width},
                      .out_score = {built.score.data(), b.streams(), b.width, b.width},
                      .out_nodes = {built.nodes.data(), b.streams()},
                      .error = {built.error.data(), b.streams()}},
                     {});
  EXPECT_TRUE(status.ok()) << status;
  return built;
}

class TreeBuildCudaTest : public CudaTest {
 protected:
  Built OnDevice(const Batch& b) {
    const DeviceArray<TreeBuildParams> params(b.params);
    const DeviceArray<TokenId> token(b.token);
    const DeviceArray<float> log_prob(b.log_prob);
    const DeviceArray<TokenId> out_token(b.streams() * b.width);
    const DeviceArray<int32_t> out_parent(b.streams() * b.width);
    const DeviceArray<float> out_score(b.streams() * b.width);
    const DeviceArray<int32_t> nodes(b.streams());
    const DeviceArray<int32_t> error(b.streams());
    const absl::Status status = cuda::TreeBuild({.params = params.const_view(),
                                                 .token = token.const_view(b.rows(), b.k),
                                                 .log_prob = log_prob.const_view(b.rows(), b.k),
                                                 .out_token = out_token.view(b.streams(), b.width),
                                                 .out_parent = out_parent.view(b.streams(), b.width),
                                                 .out_score = out_score.view(b.streams(), b.width),
                                                 .out_nodes = nodes.view(),
                                                 .error = error.view()},
                                                stream());
    EXPECT_TRUE(status.ok()) << status;
    Finish();
    return {out_token.Read(), out_parent.Read(), out_score.Read(), nodes.Read(), error.Read()};
  }
};

void ExpectEqualTree(const Batch& b, const Built& got, const Built& want, int64_t stream) {
  ASSERT_EQ(got.error[stream], 0) << "stream " << stream;
  ASSERT_EQ(got.nodes[stream], want.nodes[stream]) << "stream " << stream;
  for (int64_t i = stream * b.width; i < stream * b.width + want.nodes[stream]; ++i) {
    ASSERT_EQ(got.token[i], want.token[i]) << "stream " << stream << " node " << i - stream * b.width;
    ASSERT_EQ(got.parent[i], want.parent[i]) << "stream " << stream << " node " << i - stream * b.width;
    ASSERT_EQ(std::bit_cast<uint32_t>(got.score[i]), std::bit_cast<uint32_t>(want.score[i]))
        << "stream " << stream << " node " << i - stream * b.width;
  }
}

TEST_F(TreeBuildCudaTest, TreesOfEveryShapeAreTheHostsBitForBit) {
  Random random;
  SCOPED_TRACE(random.seed());
  for (const int64_t depths : Thinned({0, 1, 2, 7, 15, 63}, 3)) {
    for (const int64_t k : Thinned({1, 2, 5, 33, 64}, 3)) {
      for (const int64_t budget : Thinned({0, 1, 8, 32, 33, 64, 65, 128, 129, 255}, 4)) {
        const int64_t streams = random.Uniform(1, 5);
        const Batch batch =
            RandomBatch(random, streams, depths, k, budget, static_cast<int>(random.Uniform(0, 3)));
        const Built want = OnHost(batch);
        const Built got = OnDevice(batch);
        for (int64_t stream = 0; stream < streams; ++stream) {
          SCOPED_TRACE(::testing::Message() << "depths " << depths << " k " << k << " budget " << budget);
          ExpectEqualTree(batch, got, want, stream);
          if (HasFatalFailure()) {
            return;
          }
        }
      }
    }
  }
}

TEST_F(TreeBuildCudaTest, NoStreamsAreFine) {
  Random random;
  const Built none = OnDevice(RandomBatch(random, 0, 7, 64, 64, 0));
  EXPECT_TRUE(none.token.empty() && none.nodes.empty() && none.error.empty());
}

TEST_F(TreeBuildCudaTest, TiesEverywhereAreOrderedByThePathOfRanks) {
  Random random;
  SCOPED_TRACE(random.seed());
  for (const int kind : Thinned({1, 2, 4}, 2)) {
    for (const int64_t budget : Thinned({16, 64, 255}, 2)) {
      const Batch batch = RandomBatch(random, 6, 9, 4, budget, kind);
      const Built want = OnHost(batch);
      const Built got = OnDevice(batch);
      for (int64_t stream = 0; stream < batch.streams(); ++stream) {
        ExpectEqualTree(batch, got, want, stream);
      }
    }
  }
}

TEST_F(TreeBuildCudaTest, ManyStreamsOfEveryKindAreTheHostsBitForBit) {
  Random random;
  SCOPED_TRACE(random.seed());
  for (int kind = 0; kind <= 5; kind += Small(1, 2)) {
    for (const int64_t budget : Thinned({31, 64, 127, 255}, 3)) {
      const Batch batch = RandomBatch(random, Small(64, 9), kind % 2 == 0 ? 15 : 7, 64, budget, kind);
      const Built want = OnHost(batch);
      const Built got = OnDevice(batch);
      for (int64_t stream = 0; stream < batch.streams(); ++stream) {
        SCOPED_TRACE(::testing::Message() << "kind " << kind << " budget " << budget);
        ExpectEqualTree(batch, got, want, stream);
        if (HasFatalFailure()) {
          return;
        }
      }
    }
  }
}

TEST_F(TreeBuildCudaTest, AStreamsTreeDoesNotDependOnItsNeighbours) {
  Random random;
  SCOPED_TRACE(random.seed());
  const Batch batch = RandomBatch(random, 64, 15, 64, 64, 0);
  const Built together = OnDevice(batch);
  for (const int64_t stream : {0, 1, 31, 63}) {
    Batch alone = batch;
    alone.params = {batch.params[stream]};
    const auto cut = [&](auto& values) {
      values = {values.begin() + stream * 15 * 64, values.begin() + (stream + 1) * 15 * 64};
    };
    cut(alone.token);
    cut(alone.log_prob);
    const Built got = OnDevice(alone);
    ASSERT_EQ(got.nodes[0], together.nodes[stream]);
    for (int32_t i = 0; i < got.nodes[0]; ++i) {
      ASSERT_EQ(got.token[i], together.token[stream * batch.width + i]);
      ASSERT_EQ(got.parent[i], together.parent[stream * batch.width + i]);
      ASSERT_EQ(got.score[i], together.score[stream * batch.width + i]);
    }
  }
}

TEST_F(TreeBuildCudaTest, BadLogProbabilitiesAndParamsEndInTheErrorFlagAndSpareTheNeighbours) {
  Random random;
  SCOPED_TRACE(random.seed());
  const Batch good = RandomBatch(random, 3, 4, 5, 12, 0);
  const Built want = OnHost(good);
  const auto expect_error_in_second = [&](const Batch& batch) {
    const Built got = OnDevice(batch);
    EXPECT_EQ(got.error, (std::vector<int32_t>{0, 1, 0}));
    EXPECT_EQ(got.nodes[1], 1);
    EXPECT_EQ(got.parent[good.width], -1);
    EXPECT_EQ(got.score[good.width], 0);
    ExpectEqualTree(batch, got, want, 0);
    ExpectEqualTree(batch, got, want, 2);
  };
  for (const float bad : {std::nanf(""), -INFINITY, INFINITY, 0.5f}) {
    for (const int64_t at : {0, 7, 19}) {
      Batch batch = good;
      batch.params[1] = {.root = TokenId{3}, .depths = 4, .k = 5, .budget = 12};
      batch.log_prob[20 + at] = bad;
      expect_error_in_second(batch);
    }
  }
  for (const TreeBuildParams& params :
       std::vector<TreeBuildParams>{{.root = TokenId{1}, .depths = 5, .k = 5, .budget = 12},
                                    {.root = TokenId{1}, .depths = -1, .k = 5, .budget = 12},
                                    {.root = TokenId{1}, .depths = 4, .k = 6, .budget = 12},
                                    {.root = TokenId{1}, .depths = 4, .k = 0, .budget = 12},
                                    {.root = TokenId{1}, .depths = 4, .k = 5, .budget = 13},
                                    {.root = TokenId{1}, .depths = 4, .k = 5, .budget = -1}}) {
    Batch batch = good;
    batch.params[1] = params;
    expect_error_in_second(batch);
  }
}

}  // namespace
}  // namespace arborist::kernels
