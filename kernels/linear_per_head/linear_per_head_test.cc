#include "kernels/linear_per_head/linear_per_head.h"

#include <cmath>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/testing/compare.h"
#include "kernels/testing/lane_dot.h"
#include "kernels/testing/random_tensor.h"

namespace arborist::kernels {
namespace {

using namespace testing;  // NOLINT: the test's vocabulary

TEST(LinearPerHeadTest, StridedHeadsAgreeWithTheOracleAndTheGapsStayUntouched) {
  Random random;
  SCOPED_TRACE(random.seed());
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    for (const int64_t rows : {1, 2, 7, 65}) {
      constexpr int64_t kHeads = 3;
      constexpr int64_t kInputs = 20;
      constexpr int64_t kOutputs = 13;
      const StoredMatrix weight(random, dtype, kHeads * kOutputs, kInputs);
      const std::vector<float> x = random.Normals(rows * kHeads * (kInputs + 6));
      LinearPerHeadArgs args{.x = x.data(),
                             .x_row_stride = kHeads * (kInputs + 6),
                             .x_head_stride = kInputs + 6,
                             .weight = weight.view(),
                             .out = nullptr,
                             .out_row_stride = kHeads * (kOutputs + 2),
                             .out_head_stride = kOutputs + 2,
                             .tokens = rows,
                             .heads = kHeads,
                             .outputs = kOutputs};
      std::vector<float> want = Poisoned(rows * kHeads * (kOutputs + 2));
      args.out = want.data();
      ASSERT_TRUE(reference::LinearPerHead(args, {}).ok());
      std::vector<float> first;
      ForEveryIsaAndThreadCount([&](StreamView stream) {
        std::vector<float> got = Poisoned(rows * kHeads * (kOutputs + 2));
        args.out = got.data();
        ASSERT_TRUE(cpu::LinearPerHead(args, stream).ok());
        EXPECT_TRUE(Close(got, want, 3e-6));  // NaN gaps must still be there
        first = first.empty() ? got : first;
        EXPECT_TRUE(SameBits(got, first));
        for (int64_t i = 0; i < rows * kHeads * kOutputs; ++i) {  // any number of rows: the definition's bits
          const int64_t row = i / (kHeads * kOutputs);
          const int64_t head = i / kOutputs % kHeads;
          const float* in = x.data() + row * args.x_row_stride + head * args.x_head_stride;
          ASSERT_EQ(got[row * args.out_row_stride + head * args.out_head_stride + i % kOutputs],
                    LaneDot(in, weight.view(), head * kOutputs + i % kOutputs, 0, kInputs));
        }
      });
    }
  }
}

TEST(LinearPerHeadTest, WrongShapesAreNamed) {
  std::vector<float> data(100);
  LinearPerHeadArgs args{.x = data.data(),
                         .x_row_stride = 8,
                         .x_head_stride = 4,
                         .weight = {data.data(), DType::kF32, 5, 4},
                         .out = data.data(),
                         .out_row_stride = 6,
                         .out_head_stride = 3,
                         .tokens = 1,
                         .heads = 2,
                         .outputs = 3};
  EXPECT_EQ(ValidateLinearPerHead(args).message(), "weight.rows=5, expected heads * outputs=6");
  args.weight.rows = 6;
  args.x_head_stride = 3;
  EXPECT_EQ(ValidateLinearPerHead(args).message(), "x_head_stride=3, expected at least 4");
  args.x_head_stride = 4;
  args.out_row_stride = 5;
  EXPECT_EQ(ValidateLinearPerHead(args).message(), "out_row_stride=5, expected room for all heads");
}

}  // namespace
}  // namespace arborist::kernels
