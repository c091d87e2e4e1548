#include "kernels/feature_projection/feature_projection.h"

#include <vector>

#include "gtest/gtest.h"
#include "kernels/testing/compare.h"
#include "kernels/testing/random_tensor.h"

namespace arborist::kernels {
namespace {

using namespace testing;  // NOLINT: the test's vocabulary

std::vector<float> Widened(const std::vector<BFloat16>& rows) {
  std::vector<float> wide;
  for (const BFloat16 value : rows) {
    wide.push_back(ToFloat(value));
  }
  return wide;
}

TEST(FeatureProjectionTest, RowsAgreeWithTheOracleToOneBf16StepAndHaveTheSameBitsEverywhere) {
  Random random;
  SCOPED_TRACE(random.seed());
  for (const int64_t rows : {1, 2, 3, 17, 65}) {
    constexpr int64_t kHidden = 40;
    constexpr int64_t kTaps = 3 * kHidden;
    const StoredMatrix weight(random, DType::kBF16, kHidden, kTaps);
    const std::vector<float> taps = random.Normals(rows * kTaps);
    const std::vector<float> norm = random.Normals(kHidden);
    const auto run = [&](auto kernel, StreamView stream) {
      std::vector<float> scratch = Poisoned(rows * kHidden);
      std::vector<BFloat16> out(rows * kHidden, BFloat16{0x7fc0});
      EXPECT_TRUE(kernel({AsConstView(taps, rows, kTaps),
                          weight.view(),
                          {norm.data(), kHidden},
                          1e-6f,
                          AsView(scratch, rows, kHidden),
                          {out.data(), rows, kHidden, kHidden}},
                         stream)
                      .ok());
      return Widened(out);
    };
    const std::vector<float> want = run(reference::FeatureProjection, {});
    std::vector<float> first;
    ForEveryIsaAndThreadCount([&](StreamView stream) {
      const std::vector<float> got = run(cpu::FeatureProjection, stream);
      EXPECT_TRUE(Close(got, want, 0x1p-8));  // a value between two bf16 steps may round either way
      first = first.empty() ? got : first;
      EXPECT_TRUE(SameBits(got, first));
    });
  }
}

TEST(FeatureProjectionTest, WrongShapesAreNamed) {
  std::vector<float> data(100);
  std::vector<BFloat16> out(8);
  FeatureProjectionArgs args{AsConstView(data, 2, 8), {data.data(), DType::kF32, 4, 9},
                             {data.data(), 4},        1e-6f,
                             AsView(data, 2, 4),      {out.data(), 2, 4, 4}};
  EXPECT_EQ(ValidateFeatureProjection(args).message(), "taps.columns=8, expected weight.columns=9");
  args.weight.columns = 8;
  args.norm_weight.size = 3;
  EXPECT_EQ(ValidateFeatureProjection(args).message(), "norm_weight.size=3, expected weight.rows=4");
}

}  // namespace
}  // namespace arborist::kernels
