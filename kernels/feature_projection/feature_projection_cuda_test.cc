#include <vector>

#include "kernels/feature_projection/feature_projection.h"
#include "kernels/testing/compare.h"
#include "kernels/testing/cuda_test.h"
#include "kernels/testing/random_tensor.h"

namespace arborist::kernels {
namespace {

using namespace testing;  // NOLINT: the test's vocabulary

class FeatureProjectionCudaTest : public CudaTest {
 protected:
  Random random_;
};

std::vector<float> Widened(const std::vector<BFloat16>& rows) {
  std::vector<float> wide;
  for (const BFloat16 value : rows) {
    wide.push_back(ToFloat(value));
  }
  return wide;
}

TEST_F(FeatureProjectionCudaTest, RowsAgreeWithTheOracleToOneBf16StepAndHaveTheSameBitsAlone) {
  SCOPED_TRACE(random_.seed());
  for (const DType dtype : {DType::kBF16, DType::kF32}) {
    for (const int64_t hidden : {1, 40, 256, 513}) {
      const int64_t taps = 3 * hidden;
      constexpr int64_t kRows = 65;
      const StoredMatrix weight(random_, dtype, hidden, taps);
      const DeviceArray<uint8_t> stored(BytesOf(weight.view()));
      std::vector<float> x = random_.Normals(kRows * taps);
      for (float& value : x) {  // so that tensor cores round nothing
        value = ToFloat(ToBFloat16(value));
      }
      const std::vector<float> norm = random_.Normals(hidden);
      const DeviceArray<float> in(x), norm_weight(norm);
      std::vector<float> scratch = Poisoned(kRows * hidden);
      std::vector<BFloat16> want(kRows * hidden, BFloat16{0x7fc0});
      ASSERT_TRUE(reference::FeatureProjection({AsConstView(x, kRows, taps),
                                                weight.view(),
                                                {norm.data(), hidden},
                                                1e-6f,
                                                AsView(scratch, kRows, hidden),
                                                {want.data(), kRows, hidden, hidden}},
                                               {})
                      .ok());
      const auto run = [&](int64_t first, int64_t count) {
        const DeviceArray<float> fused(kRows * hidden);
        const DeviceArray<BFloat16> out(count * hidden);
        EXPECT_TRUE(cuda::FeatureProjection({{in.data() + first * taps, count, taps, taps},
                                             OnDevice(weight.view(), stored),
                                             norm_weight.const_view(),
                                             1e-6f,
                                             fused.view(kRows, hidden),
                                             out.view(count, hidden)},
                                            stream())
                        .ok());
        return Widened(out.Read());
      };
      const std::vector<float> all = run(0, kRows);
      EXPECT_TRUE(Close(all, Widened(want), 0x1p-8));  // a value between two bf16 steps may round either way
      for (const int64_t count : {0, 1, 2, 7, 33}) {
        const int64_t first = random_.Uniform(0, kRows - count);
        EXPECT_TRUE(
            SameBits(run(first, count), {all.data() + first * hidden, static_cast<size_t>(count * hidden)}))
            << count << " rows of " << hidden;
      }
    }
  }
}

}  // namespace
}  // namespace arborist::kernels
