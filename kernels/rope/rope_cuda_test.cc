#include <cmath>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/rope/rope.h"
#include "kernels/testing/compare.h"
#include "kernels/testing/cuda_test.h"
#include "kernels/testing/random_tensor.h"
#include "kernels/testing/small_shapes.h"

namespace arborist::kernels {
namespace {

using namespace testing;  // NOLINT: the test's vocabulary

constexpr int64_t kPositions = 50;

class RopeCudaTest : public CudaTest, public ::testing::WithParamInterface<RopePairing> {
 protected:
  // Random angles and positions.
  void Fill(Random& random, int64_t half, int64_t rows) {
    cosine_.clear();
    sine_.clear();
    for (int64_t i = 0; i < kPositions * half; ++i) {
      const float angle = random.Normal(10.0f);
      cosine_.push_back(std::cos(angle));
      sine_.push_back(std::sin(angle));
    }
    position_.resize(rows);
    for (int32_t& p : position_) {
      p = static_cast<int32_t>(random.Uniform(0, kPositions - 1));
    }
  }

  std::vector<float> cosine_, sine_;
  std::vector<int32_t> position_;
};

// Each element is one fma of one product, in the CPU's order: equal bit for bit, whatever the strides.
TEST_P(RopeCudaTest, EveryShapeHasTheBitsOfTheCpuAndTouchesNothingElse) {
  Random random;
  SCOPED_TRACE(random.seed());
  ThreadPool pool(2);
  for (const int64_t half : Thinned({1, 3, 4, 16, 17, 32, 64}, 3)) {
    for (const int64_t heads : Thinned({1, 3, 4, 7, 64}, 3)) {
      for (const int64_t rows : Thinned({0, 1, 2, 17, 65}, 3)) {
        for (const int64_t gap : Thinned({0, 4, 5}, 2)) {
          const int64_t head_stride = 2 * half + gap, row_stride = heads * head_stride + gap;
          Fill(random, half, rows);
          const std::vector<float> x = random.Normals(rows * row_stride);
          std::vector<float> want = x;
          const DeviceArray<float> got(x), cosine(cosine_), sine(sine_);
          const DeviceArray<int32_t> position(position_);
          ASSERT_TRUE(cpu::Rope({want.data(),
                                 row_stride,
                                 head_stride,
                                 heads,
                                 {position_.data(), rows},
                                 AsConstView(cosine_, kPositions, half),
                                 AsConstView(sine_, kPositions, half),
                                 GetParam()},
                                {.threads = &pool})
                          .ok());
          ASSERT_TRUE(
              cuda::Rope({got.data(), row_stride, head_stride, heads, position.const_view(),
                          cosine.const_view(kPositions, half), sine.const_view(kPositions, half), GetParam()},
                         stream())
                  .ok());
          EXPECT_TRUE(SameBits(got.Read(), want))
              << half << " pairs, " << heads << " heads, " << rows << " rows";
        }
      }
    }
  }
}

TEST_P(RopeCudaTest, VectorsFromElsewhereHaveTheBitsOfThoseInPlace) {
  Random random;
  SCOPED_TRACE(random.seed());
  for (const int64_t half : {3, 16, 32}) {
    for (const int64_t heads : {1, 7, 8}) {
      constexpr int64_t kRows = 9;
      const int64_t width = 2 * half, stride = heads * (width + 4);
      Fill(random, half, kRows);
      position_[3] = -1;
      position_[5] = kPositions;
      const std::vector<float> source = random.Normals(kRows * heads * width);
      const DeviceArray<float> in_place(source), from(source), cosine(cosine_), sine(sine_);
      const DeviceArray<float> into(std::vector<float>(kRows * stride, -7.0f));
      const DeviceArray<int32_t> position(position_);
      RopeArgs args{in_place.data(),
                    heads * width,
                    width,
                    heads,
                    position.const_view(),
                    cosine.const_view(kPositions, half),
                    sine.const_view(kPositions, half),
                    GetParam()};
      ASSERT_TRUE(cuda::Rope(args, stream()).ok());
      args.from = from.data();
      args.from_row_stride = args.row_stride;
      args.from_head_stride = args.head_stride;
      args.x = into.data();
      args.row_stride = stride;
      args.head_stride = width + 4;
      ASSERT_TRUE(cuda::Rope(args, stream()).ok());
      const std::vector<float> want = in_place.Read(), got = into.Read();
      for (int64_t v = 0; v < kRows * heads; ++v) {
        EXPECT_TRUE(SameBits({got.data() + v * (width + 4), static_cast<size_t>(width)},
                             {want.data() + v * width, static_cast<size_t>(width)}));
        EXPECT_EQ(got[v * (width + 4) + width], -7.0f) << "the gap stays";
      }
      EXPECT_TRUE(SameBits(from.Read(), source));
    }
  }
}

TEST_P(RopeCudaTest, APositionOutsideTheTablesLeavesTheVectorAsItIs) {
  Random random;
  Fill(random, 4, 4);
  const std::vector<float> x = random.Normals(4 * 8);
  const DeviceArray<float> got(x), cosine(cosine_), sine(sine_);
  const DeviceArray<int32_t> position({-1, kPositions, 1 << 30, -(1 << 30)});
  ASSERT_TRUE(cuda::Rope({got.data(), 8, 8, 1, position.const_view(), cosine.const_view(kPositions, 4),
                          sine.const_view(kPositions, 4), GetParam()},
                         stream())
                  .ok());
  EXPECT_TRUE(SameBits(got.Read(), x));
}

INSTANTIATE_TEST_SUITE_P(Pairings, RopeCudaTest,
                         ::testing::Values(RopePairing::kInterleaved, RopePairing::kHalfSplit));

}  // namespace
}  // namespace arborist::kernels
