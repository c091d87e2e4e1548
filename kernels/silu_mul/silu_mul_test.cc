#include "kernels/silu_mul/silu_mul.h"

#include <vector>

#include "gtest/gtest.h"
#include "kernels/testing/compare.h"
#include "kernels/testing/random_tensor.h"

namespace arborist::kernels {
namespace {

using namespace testing;  // NOLINT: the test's vocabulary

TEST(SiluMulTest, EveryWidthAgreesWithTheOracleAndHasTheSameBitsEverywhere) {
  Random random;
  SCOPED_TRACE(random.seed());
  for (const int64_t columns : {1, 3, 15, 16, 17, 96, 577}) {
    for (const int64_t rows : {1, 2, 17, 65}) {
      std::vector<float> gate = random.Normals(rows * columns, 4.0f);
      gate[0] = -200.0f;  // exp overflows: the product is -0, not NaN
      const std::vector<float> up = random.Normals(rows * columns);
      std::vector<float> want = Poisoned(rows * columns);
      std::vector<float> first;
      const auto gates = AsConstView(gate, rows, columns);
      const auto ups = AsConstView(up, rows, columns);
      ASSERT_TRUE(reference::SiluMul({gates, ups, AsView(want, rows, columns)}, {}).ok());
      ForEveryIsaAndThreadCount([&](StreamView stream) {
        std::vector<float> got = Poisoned(rows * columns);
        ASSERT_TRUE(cpu::SiluMul({gates, ups, AsView(got, rows, columns)}, stream).ok());
        EXPECT_TRUE(Close(got, want, 1e-6));  // exp is good to 3 units of the last place
        first = first.empty() ? got : first;
        EXPECT_TRUE(SameBits(got, first));
        std::vector<float> in_place = gate;
        ASSERT_TRUE(
            cpu::SiluMul({AsConstView(in_place, rows, columns), ups, AsView(in_place, rows, columns)}, stream)
                .ok());
        EXPECT_TRUE(SameBits(in_place, first));
      });
    }
  }
}

TEST(SiluMulTest, WrongShapesAreNamed) {
  std::vector<float> x(12);
  EXPECT_EQ(ValidateSiluMul({AsConstView(x, 2, 4), AsConstView(x, 2, 3), AsView(x, 2, 4)}).message(),
            "up=[2, 3], expected gate's [2, 4]");
  EXPECT_EQ(ValidateSiluMul({AsConstView(x, 2, 4), AsConstView(x, 2, 4), AsView(x, 3, 4)}).message(),
            "out=[3, 4], expected gate's [2, 4]");
}

}  // namespace
}  // namespace arborist::kernels
