#include "kernels/row_ops/row_ops.h"

#include <vector>

#include "gtest/gtest.h"
#include "kernels/testing/compare.h"
#include "kernels/testing/random_tensor.h"

namespace arborist::kernels {
namespace {

using namespace testing;  // NOLINT: the test's vocabulary

TEST(RowOpsTest, EveryOperationHasTheBitsOfTheOracleAndLeavesGapsAlone) {
  Random random;
  SCOPED_TRACE(random.seed());
  ForEveryIsaAndThreadCount([&](StreamView stream) {
    for (const int64_t rows : {0, 1, 5, 300}) {
      for (const int64_t columns : {1, 33, 512}) {
        const int64_t stride = columns + 3;
        const std::vector<float> from = random.Normals(40 * columns + rows * columns);
        const std::vector<float> before = random.Normals(rows * stride);
        std::vector<int32_t> row(rows);
        for (int32_t& r : row) {
          r = static_cast<int32_t>(random.Uniform(0, rows + 39));
        }
        const auto same = [&](auto reference_run, auto cpu_run) {
          std::vector<float> want = before, got = before;
          ASSERT_TRUE(reference_run(View2<float>{want.data(), rows, columns, stride}).ok());
          ASSERT_TRUE(cpu_run(View2<float>{got.data(), rows, columns, stride}).ok());
          EXPECT_TRUE(SameBits(got, want));
        };
        const View2<const float> source{from.data(), rows, columns, columns};
        same(
            [&](View2<float> into) {
              return reference::AddRows({source, into}, {});
            },
            [&](View2<float> into) {
              return cpu::AddRows({source, into}, stream);
            });
        same(
            [&](View2<float> into) {
              return reference::CopyRows({source, into}, {});
            },
            [&](View2<float> into) {
              return cpu::CopyRows({source, into}, stream);
            });
        const View2<const float> all{from.data(), rows + 40, columns, columns};
        same(
            [&](View2<float> into) {
              return reference::GatherRows({all, {row.data(), rows}, into}, {});
            },
            [&](View2<float> into) {
              return cpu::GatherRows({all, {row.data(), rows}, into}, stream);
            });
      }
    }
  });
}

TEST(RowOpsTest, HandMadeRowsAreRight) {
  ThreadPool pool(1);
  const std::vector<float> from = {1, 2, 3, 4, 5, 6};
  const std::vector<int32_t> row = {2, 0};
  std::vector<float> into = {10, 20, 30, 40};
  const View2<const float> two = AsConstView(from, 2, 2), three = AsConstView(from, 3, 2);
  ASSERT_TRUE(cpu::AddRows({two, AsView(into, 2, 2)}, {.threads = &pool}).ok());
  EXPECT_EQ(into, (std::vector<float>{11, 22, 33, 44}));
  ASSERT_TRUE(cpu::CopyRows({two, AsView(into, 2, 2)}, {.threads = &pool}).ok());
  EXPECT_EQ(into, (std::vector<float>{1, 2, 3, 4}));
  ASSERT_TRUE(cpu::GatherRows({three, {row.data(), 2}, AsView(into, 2, 2)}, {.threads = &pool}).ok());
  EXPECT_EQ(into, (std::vector<float>{5, 6, 1, 2}));
}

TEST(RowOpsTest, WrongShapesAreNamed) {
  std::vector<float> x(12);
  const std::vector<int32_t> row(3);
  EXPECT_EQ(ValidateAddRows({AsConstView(x, 2, 4), AsView(x, 3, 4)}).message(),
            "into is [3, 4], expected [2, 4]");
  EXPECT_EQ(ValidateCopyRows({AsConstView(x, 2, 4), AsView(x, 2, 3)}).message(),
            "into is [2, 3], expected [2, 4]");
  EXPECT_EQ(ValidateGatherRows({AsConstView(x, 3, 4), {row.data(), 3}, AsView(x, 2, 4)}).message(),
            "row.size=3, expected into.rows=2");
  EXPECT_EQ(ValidateGatherRows({AsConstView(x, 3, 4), {row.data(), 3}, AsView(x, 3, 3)}).message(),
            "into.columns=3, expected from.columns=4");
}

}  // namespace
}  // namespace arborist::kernels
