#include "kernels/rope/rope.h"

#include <cmath>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/testing/compare.h"
#include "kernels/testing/random_tensor.h"

namespace arborist::kernels {
namespace {

using namespace testing;  // NOLINT: the test's vocabulary

constexpr int64_t kPositions = 50;

class RopeTest : public ::testing::TestWithParam<RopePairing> {};

TEST_P(RopeTest, EveryShapeAgreesWithTheOracleAndHasTheSameBitsEverywhere) {
  Random random;
  SCOPED_TRACE(random.seed());
  for (const int64_t half : {1, 3, 4, 16, 17, 32}) {
    for (const int64_t heads : {1, 3, 8}) {
      for (const int64_t rows : {1, 2, 17, 65}) {
        const int64_t head_stride = 2 * half + 5;  // a part of a wider head: the rest must stay
        const int64_t row_stride = heads * head_stride + 3;
        std::vector<float> cosine, sine;
        for (int64_t i = 0; i < kPositions * half; ++i) {
          const float angle = random.Normal(10.0f);
          cosine.push_back(std::cos(angle));
          sine.push_back(std::sin(angle));
        }
        std::vector<int32_t> position(rows);
        for (int32_t& p : position) {
          p = static_cast<int32_t>(random.Uniform(0, kPositions - 1));
        }
        const std::vector<float> x = random.Normals(rows * row_stride);
        RopeArgs args{nullptr,
                      row_stride,
                      head_stride,
                      heads,
                      {position.data(), rows},
                      AsConstView(cosine, kPositions, half),
                      AsConstView(sine, kPositions, half),
                      GetParam()};
        std::vector<float> want = x;
        std::vector<float> first;
        args.x = want.data();
        ASSERT_TRUE(reference::Rope(args, {}).ok());
        ForEveryIsaAndThreadCount([&](StreamView stream) {
          std::vector<float> got = x;
          args.x = got.data();
          ASSERT_TRUE(cpu::Rope(args, stream).ok());
          EXPECT_TRUE(Close(got, want, 3e-7));  // two roundings
          RopeArgs apart = args;                // from another place, the same bits
          std::vector<float> there(x.size(), -7.0f);
          apart.from = x.data();
          apart.from_row_stride = row_stride;
          apart.from_head_stride = head_stride;
          apart.x = there.data();
          ASSERT_TRUE(cpu::Rope(apart, stream).ok());
          for (int64_t v = 0; v < rows * heads; ++v) {
            const int64_t at = v / heads * row_stride + v % heads * head_stride;
            EXPECT_TRUE(SameBits({there.data() + at, static_cast<size_t>(2 * half)},
                                 {got.data() + at, static_cast<size_t>(2 * half)}));
          }
          first = first.empty() ? got : first;
          EXPECT_TRUE(SameBits(got, first));
        });
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Pairings, RopeTest,
                         ::testing::Values(RopePairing::kInterleaved, RopePairing::kHalfSplit));

TEST(RopePairingTest, TheTwoPairingsRotateDifferentNeighbours) {
  const std::vector<float> cosine = {0, 0};
  const std::vector<float> sine = {1, 1};
  const std::vector<int32_t> position = {0};
  ThreadPool pool(1);
  std::vector<float> x = {1, 2, 3, 4};
  RopeArgs args{x.data(),
                4,
                4,
                1,
                {position.data(), 1},
                AsConstView(cosine, 1, 2),
                AsConstView(sine, 1, 2),
                RopePairing::kInterleaved};
  ASSERT_TRUE(cpu::Rope(args, {.threads = &pool}).ok());
  EXPECT_EQ(x, (std::vector<float>{-2, 1, -4, 3}));
  x = {1, 2, 3, 4};
  args.pairing = RopePairing::kHalfSplit;
  ASSERT_TRUE(cpu::Rope(args, {.threads = &pool}).ok());
  EXPECT_EQ(x, (std::vector<float>{-3, -4, 1, 2}));
}

TEST(RopePairingTest, APositionPastTheTableIsNamed) {
  std::vector<float> x(8);
  const std::vector<int32_t> position = {0, 3};
  const RopeArgs args{x.data(),
                      4,
                      4,
                      1,
                      {position.data(), 2},
                      AsConstView(x, 3, 2),
                      AsConstView(x, 3, 2),
                      RopePairing::kInterleaved};
  EXPECT_EQ(ValidateRope(args).message(), "position[1]=3, expected one in [0, 3)");
}

}  // namespace
}  // namespace arborist::kernels
