#include <algorithm>
#include <iterator>
#include <limits>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/silu_mul/silu_mul.h"
#include "kernels/testing/compare.h"
#include "kernels/testing/cuda_test.h"
#include "kernels/testing/random_tensor.h"
#include "kernels/testing/small_shapes.h"

namespace arborist::kernels {
namespace {

using namespace testing;  // NOLINT: the test's vocabulary

class SiluMulCudaTest : public CudaTest {};

// The operations are the CPU's, one IEEE rounding each, so the result is equal bit for bit: more than a
// tolerance against the oracle, and independent of rows by itself.
TEST_F(SiluMulCudaTest, EveryShapeHasTheBitsOfTheCpu) {
  Random random;
  SCOPED_TRACE(random.seed());
  ThreadPool pool(2);
  for (const int64_t columns : Thinned({1, 3, 16, 577, 2048, 18432}, 4)) {
    for (const int64_t rows : Thinned({0, 1, 2, 17, 65}, 3)) {
      for (const int64_t gap : {0, 4, 7}) {
        const int64_t stride = columns + gap;
        std::vector<float> gate = random.Normals(rows * stride, 4.0f);
        const std::vector<float> up = random.Normals(rows * stride);
        const float special[] = {-200.0f, 200.0f, -88.5f, 0.0f, -0.0f, std::numeric_limits<float>::infinity(),
                                 87.3f,   1e-38f};
        for (int64_t i = 0; i < std::min<int64_t>(std::size(special), rows * stride); ++i) {
          gate[i] = special[i];
        }
        std::vector<float> want = Poisoned(rows * stride);
        const DeviceArray<float> got(want), gates(gate), ups(up);
        ASSERT_TRUE(cpu::SiluMul({.gate = {gate.data(), rows, columns, stride},
                                  .up = {up.data(), rows, columns, stride},
                                  .out = {want.data(), rows, columns, stride}},
                                 {.threads = &pool})
                        .ok());
        const View2<const float> ups_view{ups.data(), rows, columns, stride};
        ASSERT_TRUE(cuda::SiluMul({.gate = {gates.data(), rows, columns, stride},
                                   .up = ups_view,
                                   .out = {got.data(), rows, columns, stride}},
                                  stream())
                        .ok());
        EXPECT_TRUE(SameBits(got.Read(), want)) << columns << " columns, " << rows << " rows";
        ASSERT_TRUE(cuda::SiluMul({.gate = {gates.data(), rows, columns, stride},
                                   .up = ups_view,
                                   .out = {gates.data(), rows, columns, stride}},
                                  stream())
                        .ok());
        for (int64_t t = 0; t < rows; ++t) {  // in place; what lies between rows stays
          std::copy_n(gate.begin() + t * stride + columns, gap, want.begin() + t * stride + columns);
        }
        EXPECT_TRUE(SameBits(gates.Read(), want)) << columns << " columns in place";
      }
    }
  }
}

}  // namespace
}  // namespace arborist::kernels
