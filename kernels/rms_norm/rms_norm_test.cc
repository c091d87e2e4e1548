#include "kernels/rms_norm/rms_norm.h"

#include <cmath>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/testing/compare.h"
#include "kernels/testing/random_tensor.h"

namespace arborist::kernels {
namespace {

using namespace testing;  // NOLINT: the test's vocabulary

TEST(RmsNormTest, AHandMadeRowIsRight) {
  std::vector<float> x = {3, 4, 0, 0};
  const std::vector<float> weight = {1, 2, 1, 1};
  std::vector<float> out = Poisoned(4);
  ThreadPool pool(1);
  ASSERT_TRUE(
      cpu::RmsNorm({AsConstView(x, 1, 4), {weight.data(), 4}, AsView(out, 1, 4), 1e-12f}, {.threads = &pool})
          .ok());
  EXPECT_TRUE(Close(out, std::vector<float>{1.2f, 3.2f, 0, 0}, 1e-6));
}

TEST(RmsNormTest, EveryWidthAgreesWithTheOracleAndHasTheSameBitsEverywhere) {
  Random random;
  SCOPED_TRACE(random.seed());
  for (const int64_t columns : {1, 3, 8, 15, 16, 17, 96, 256, 1000}) {
    for (const int64_t rows : {1, 2, 7, 65}) {
      const std::vector<float> x = random.Normals(rows * columns, 3.0f);
      const std::vector<float> weight = random.Normals(columns);
      std::vector<float> want = Poisoned(rows * columns);
      std::vector<float> first;
      ASSERT_TRUE(
          reference::RmsNorm(
              {AsConstView(x, rows, columns), {weight.data(), columns}, AsView(want, rows, columns), 1e-5f},
              {})
              .ok());
      ForEveryIsaAndThreadCount([&](StreamView stream) {
        std::vector<float> got = Poisoned(rows * columns);
        ASSERT_TRUE(
            cpu::RmsNorm(
                {AsConstView(x, rows, columns), {weight.data(), columns}, AsView(got, rows, columns), 1e-5f},
                stream)
                .ok());
        EXPECT_TRUE(Close(got, want, 1e-6));  // a few roundings of 6e-8 each
        first = first.empty() ? got : first;
        EXPECT_TRUE(SameBits(got, first));
        std::vector<float> in_place = x;
        ASSERT_TRUE(cpu::RmsNorm({AsConstView(in_place, rows, columns),
                                  {weight.data(), columns},
                                  AsView(in_place, rows, columns),
                                  1e-5f},
                                 stream)
                        .ok());
        EXPECT_TRUE(SameBits(in_place, first));
      });
    }
  }
}

TEST(RmsNormTest, WrongArgumentsAreNamed) {
  std::vector<float> x(12);
  RmsNormArgs args{AsConstView(x, 2, 4), {x.data(), 3}, AsView(x, 2, 4), 1e-6f};
  EXPECT_EQ(ValidateRmsNorm(args).message(), "weight.size=3, expected x.columns=4 > 0");
  args.weight.size = 4;
  args.epsilon = 0;
  EXPECT_EQ(ValidateRmsNorm(args).message(), "epsilon=0, expected > 0");
  args.epsilon = std::nanf("");
  EXPECT_FALSE(ValidateRmsNorm(args).ok());
  args.epsilon = 1e-6f;
  args.out.data = x.data() + 2;
  EXPECT_EQ(ValidateRmsNorm(args).message(), "out overlaps x in part, expected the same rows or none");
}

TEST(RmsNormTest, AddRmsNormIsASumAndItsNorm) {
  Random random;
  SCOPED_TRACE(random.seed());
  for (const int64_t columns : {1, 17, 256}) {
    const int64_t rows = 7;
    const std::vector<float> from = random.Normals(rows * columns), weight = random.Normals(columns);
    const std::vector<float> before = random.Normals(rows * columns);
    std::vector<float> sum = before, want = Poisoned(rows * columns);
    for (size_t i = 0; i < sum.size(); ++i) {
      sum[i] += from[i];
    }
    ThreadPool pool(1);
    const View1<const float> scale{weight.data(), columns};
    ASSERT_TRUE(cpu::RmsNorm({AsConstView(sum, rows, columns), scale, AsView(want, rows, columns), 1e-5f},
                             {.threads = &pool})
                    .ok());
    ForEveryIsaAndThreadCount([&](StreamView stream) {
      std::vector<float> into = before, out = Poisoned(rows * columns), copy = Poisoned(rows * columns);
      ASSERT_TRUE(cpu::AddRmsNorm({AsConstView(from, rows, columns), AsView(into, rows, columns), scale,
                                   AsView(out, rows, columns), 1e-5f, AsView(copy, rows, columns)},
                                  stream)
                      .ok());
      EXPECT_TRUE(SameBits(into, sum));
      EXPECT_TRUE(SameBits(copy, sum));
      EXPECT_TRUE(SameBits(out, want));
    });
    std::vector<float> into = before, out = Poisoned(rows * columns);
    ASSERT_TRUE(reference::AddRmsNorm({AsConstView(from, rows, columns), AsView(into, rows, columns), scale,
                                       AsView(out, rows, columns), 1e-5f},
                                      {})
                    .ok());
    EXPECT_TRUE(Close(out, want, 1e-6));
    const absl::Status in_place =
        cpu::AddRmsNorm({AsConstView(from, rows, columns), AsView(into, rows, columns), scale,
                         AsView(into, rows, columns), 1e-5f},
                        {.threads = &pool});
    EXPECT_EQ(in_place.message(), "out is into, expected another place: both are kept");
  }
}

}  // namespace
}  // namespace arborist::kernels
