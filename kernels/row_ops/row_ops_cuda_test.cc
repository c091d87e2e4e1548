#include <vector>

#include "gtest/gtest.h"
#include "kernels/row_ops/row_ops.h"
#include "kernels/testing/compare.h"
#include "kernels/testing/cuda_test.h"
#include "kernels/testing/random_tensor.h"

namespace arborist::kernels {
namespace {

using namespace testing;  // NOLINT: the test's vocabulary

class RowOpsCudaTest : public CudaTest {};

// One addition or none an element: equal bit for bit.
TEST_F(RowOpsCudaTest, EveryOperationHasTheBitsOfTheOracleAndLeavesGapsAlone) {
  Random random;
  SCOPED_TRACE(random.seed());
  for (const int64_t rows : {0, 1, 5, 300}) {
    for (const int64_t columns : {1, 33, 512, 7168}) {
      for (const int64_t gap : {0, 3, 4}) {
        const int64_t stride = columns + gap, sources = rows + 7;
        const std::vector<float> from = random.Normals(sources * columns),
                                 before = random.Normals(rows * stride);
        std::vector<int32_t> row(rows);
        for (int32_t& r : row) {
          r = static_cast<int32_t>(random.Uniform(0, sources - 1));
        }
        const DeviceArray<float> device_from(from);
        const DeviceArray<int32_t> device_row(row);
        const auto same = [&](auto run_reference, auto run_cuda) {
          std::vector<float> want = before;
          const DeviceArray<float> got(before);
          ASSERT_TRUE(run_reference(View2<float>{want.data(), rows, columns, stride}).ok());
          ASSERT_TRUE(run_cuda(View2<float>{got.data(), rows, columns, stride}).ok());
          EXPECT_TRUE(SameBits(got.Read(), want)) << rows << " rows, " << columns << " columns";
        };
        const View2<const float> host{from.data(), rows, columns, columns};
        const View2<const float> device{device_from.data(), rows, columns, columns};
        same(
            [&](View2<float> into) {
              return reference::AddRows({host, into}, {});
            },
            [&](View2<float> into) {
              return cuda::AddRows({device, into}, stream());
            });
        same(
            [&](View2<float> into) {
              return reference::CopyRows({host, into}, {});
            },
            [&](View2<float> into) {
              return cuda::CopyRows({device, into}, stream());
            });
        const View2<const float> all{from.data(), sources, columns, columns};
        const View2<const float> device_all{device_from.data(), sources, columns, columns};
        same(
            [&](View2<float> into) {
              return reference::GatherRows({all, {row.data(), rows}, into}, {});
            },
            [&](View2<float> into) {
              return cuda::GatherRows({device_all, device_row.const_view(), into}, stream());
            });
      }
    }
  }
}

TEST_F(RowOpsCudaTest, ARowOutsideTheSourceGathersZeros) {
  const DeviceArray<float> from(std::vector<float>(8, 3.0f)), into(4 * 4);
  const DeviceArray<int32_t> row({-1, 2, 1, 1 << 30});
  ASSERT_TRUE(cuda::GatherRows({from.const_view(2, 4), row.const_view(), into.view(4, 4)}, stream()).ok());
  EXPECT_EQ(into.Read(), (std::vector<float>{0, 0, 0, 0, 0, 0, 0, 0, 3, 3, 3, 3, 0, 0, 0, 0}));
}

}  // namespace
}  // namespace arborist::kernels
