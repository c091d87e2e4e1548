#include <algorithm>
#include <limits>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/rms_norm/rms_norm.h"
#include "kernels/testing/compare.h"
#include "kernels/testing/cuda_test.h"
#include "kernels/testing/random_tensor.h"
#include "kernels/testing/small_shapes.h"

namespace arborist::kernels {
namespace {

using namespace testing;  // NOLINT: the test's vocabulary

// Every way in which rows are shared out among threads, its ends, and widths that are no multiple of four.
constexpr int64_t kColumns[] = {1,    3,    4,    96,   128,  129,  511,   512,   513,   1536, 2048,
                                2050, 4096, 4097, 7168, 7169, 7172, 16384, 16385, 16388, 33000};

class RmsNormCudaTest : public CudaTest {
 protected:
  // The norm of `rows` rows that begin `offset` floats behind a 16-byte boundary and lie `stride` apart.
  std::vector<float> Run(const std::vector<float>& x, const std::vector<float>& weight, int64_t rows,
                         int64_t offset = 0, int64_t gap = 0, bool in_place = false) {
    const auto columns = static_cast<int64_t>(weight.size());
    const int64_t stride = columns + gap;
    std::vector<float> spread = Poisoned(offset + rows * stride);
    for (int64_t t = 0; t < rows; ++t) {
      std::copy_n(x.begin() + t * columns, columns, spread.begin() + offset + t * stride);
    }
    const DeviceArray<float> from(spread), to(Poisoned(offset + rows * stride)), scale(weight);
    const DeviceArray<float>& out = in_place ? from : to;
    EXPECT_TRUE(cuda::RmsNorm({.x = {from.data() + offset, rows, columns, stride},
                               .weight = scale.const_view(),
                               .out = {out.data() + offset, rows, columns, stride},
                               .epsilon = 1e-5f},
                              stream())
                    .ok());
    const std::vector<float> written = out.Read();
    std::vector<float> packed(static_cast<size_t>(rows * columns));
    for (int64_t t = 0; t < rows; ++t) {
      std::copy_n(written.begin() + offset + t * stride, columns, packed.begin() + t * columns);
      for (int64_t c = columns; c < stride; ++c) {
        EXPECT_TRUE(written[offset + t * stride + c] != written[offset + t * stride + c])
            << "a gap was written";
      }
    }
    return packed;
  }
};

TEST_F(RmsNormCudaTest, EveryWidthAgreesWithTheOracleForAnyNumberOfRows) {
  Random random;
  SCOPED_TRACE(random.seed());
  for (const int64_t columns : Thinned(kColumns, 7)) {
    for (const int64_t rows : Thinned({0, 1, 2, 7, 65}, 3)) {
      const std::vector<float> x = random.Normals(rows * columns, 3.0f), weight = random.Normals(columns);
      std::vector<float> want = Poisoned(rows * columns);
      ASSERT_TRUE(
          reference::RmsNorm(
              {AsConstView(x, rows, columns), {weight.data(), columns}, AsView(want, rows, columns), 1e-5f},
              {})
              .ok());
      // The sum has chains of at most some dozen roundings, then sqrt, division and two products: some 6e-8
      // each.
      EXPECT_TRUE(Close(Run(x, weight, rows), want, 1e-6)) << columns << " columns, " << rows << " rows";
    }
  }
}

TEST_F(RmsNormCudaTest, ARowHasTheSameBitsAloneInABatchAtAnyAlignmentAndInPlace) {
  Random random;
  SCOPED_TRACE(random.seed());
  for (const int64_t columns : Thinned(kColumns, 7)) {
    const int64_t rows = Small(33, 7);
    const std::vector<float> x = random.Normals(rows * columns, 3.0f), weight = random.Normals(columns);
    const std::vector<float> together = Run(x, weight, rows);
    EXPECT_TRUE(SameBits(Run(x, weight, rows, 0, 0, true), together)) << columns;
    EXPECT_TRUE(SameBits(Run(x, weight, rows, 1, 0), together)) << columns;
    EXPECT_TRUE(SameBits(Run(x, weight, rows, 0, 4), together)) << columns;
    EXPECT_TRUE(SameBits(Run(x, weight, rows, 3, 7, true), together)) << columns;
    for (const int64_t row : {int64_t{0}, rows / 2, rows - 1}) {
      const std::vector<float> alone(x.begin() + row * columns, x.begin() + (row + 1) * columns);
      const std::vector<float> part(together.begin() + row * columns, together.begin() + (row + 1) * columns);
      EXPECT_TRUE(SameBits(Run(alone, weight, 1), part)) << columns;
    }
    std::vector<float> others = random.Normals(rows * columns, 100.0f);  // one row keeps its values
    others[0] = std::numeric_limits<float>::quiet_NaN();
    std::copy_n(x.begin() + 5 * columns, columns, others.begin() + 5 * columns);
    const std::vector<float> beside = Run(others, weight, rows);
    EXPECT_TRUE(SameBits(std::vector<float>(beside.begin() + 5 * columns, beside.begin() + 6 * columns),
                         std::vector<float>(together.begin() + 5 * columns, together.begin() + 6 * columns)))
        << columns;
  }
}

TEST_F(RmsNormCudaTest, AddRmsNormIsASumAndItsNormToTheLastBit) {
  Random random;
  SCOPED_TRACE(random.seed());
  for (const int64_t columns : Thinned(kColumns, 7)) {
    for (const int64_t rows : {0, 1, 5}) {
      const std::vector<float> from = random.Normals(rows * columns), weight = random.Normals(columns);
      const std::vector<float> before = random.Normals(rows * columns);
      std::vector<float> sum = before;
      for (size_t i = 0; i < sum.size(); ++i) {
        sum[i] += from[i];
      }
      const int64_t gap = columns % 3;  // between the copy's rows
      const DeviceArray<float> added(from), into(before), scale(weight), out(rows * columns);
      const DeviceArray<float> copy(std::vector<float>(rows * (columns + gap), -7.0f));
      ASSERT_TRUE(cuda::AddRmsNorm({.from = added.const_view(rows, columns),
                                    .into = into.view(rows, columns),
                                    .weight = scale.const_view(),
                                    .out = out.view(rows, columns),
                                    .epsilon = 1e-5f,
                                    .copy = {copy.data(), rows, columns, columns + gap}},
                                   stream())
                      .ok());
      Finish();
      EXPECT_TRUE(SameBits(into.Read(), sum)) << columns;
      const std::vector<float> copied = copy.Read();
      for (int64_t i = 0; i < rows * (columns + gap); ++i) {
        const int64_t row = i / (columns + gap), column = i % (columns + gap);
        ASSERT_EQ(copied[i], column < columns ? sum[row * columns + column] : -7.0f) << columns;
      }
      EXPECT_TRUE(SameBits(out.Read(), Run(sum, weight, rows))) << columns;
    }
  }
}

}  // namespace
}  // namespace arborist::kernels
