#include <span>
#include <vector>

#include "kernels/linear_per_head/linear_per_head.h"
#include "kernels/testing/compare.h"
#include "kernels/testing/cuda_test.h"
#include "kernels/testing/random_tensor.h"
#include "kernels/testing/small_shapes.h"

namespace arborist::kernels {
namespace {

using namespace testing;  // NOLINT: the test's vocabulary

class LinearPerHeadCudaTest : public CudaTest {
 protected:
  Random random_;
};

struct Shape {
  int64_t heads, outputs, inputs, x_gap, out_gap;
  bool shared_input;
};

// The tolerance is linear_cuda_test.cc's: sums of at most 1,600 products.
constexpr double kTolerance = 1.5e-5;

// K2's absorbed products at one or more heads, their rope part with one input
// for all heads, and odd ones.
TEST_F(LinearPerHeadCudaTest, StridedHeadsAgreeWithTheOracleKeepGapsAndHaveTheSameBitsAlone) {
  SCOPED_TRACE(random_.seed());
  constexpr Shape kShapes[] = {{3, 13, 20, 6, 2, false},   {2, 512, 128, 0, 64, false},
                               {8, 128, 512, 0, 0, false}, {2, 64, 1536, 0, 12, true},
                               {5, 33, 77, 1, 3, false},   {1, 40, 64, 0, 0, false},
                               {8, 32, 128, 0, 128, true}, {7, 1, 9, 2, 1, false}};
  for (const DType dtype : {DType::kBF16, DType::kF32, DType::kF16}) {
    for (const Shape& shape : Thinned(kShapes, 4)) {
      SCOPED_TRACE(::testing::Message() << Name(dtype) << " " << shape.heads << " heads of " << shape.outputs
                                        << " x " << shape.inputs);
      const StoredMatrix weight(random_, dtype, shape.heads * shape.outputs, shape.inputs);
      const DeviceArray<uint8_t> stored(BytesOf(weight.view()));
      const int64_t x_row = (shape.shared_input ? 1 : shape.heads) * (shape.inputs + shape.x_gap);
      const int64_t out_row = shape.heads * (shape.outputs + shape.out_gap);
      constexpr int64_t kMaxRows = 130;
      const std::vector<float> x = random_.Normals(kMaxRows * x_row);
      const DeviceArray<float> in(x);
      LinearPerHeadArgs args{.x = x.data(),
                             .x_row_stride = x_row,
                             .x_head_stride = shape.shared_input ? 0 : shape.inputs + shape.x_gap,
                             .weight = weight.view(),
                             .out = nullptr,
                             .out_row_stride = out_row,
                             .out_head_stride = shape.outputs + shape.out_gap,
                             .tokens = kMaxRows,
                             .heads = shape.heads,
                             .outputs = shape.outputs};
      std::vector<float> rounded = x;
      if (dtype == DType::kBF16) {
        for (float& value : rounded) {
          value = ToFloat(ToBFloat16(value));
        }
      }
      const DeviceArray<float> rounded_in(rounded);
      std::vector<float> want = Poisoned(kMaxRows * out_row);
      args.x = rounded.data();
      args.out = want.data();
      ASSERT_TRUE(reference::LinearPerHead(args, {}).ok());
      const auto run = [&](auto* product, const DeviceArray<float>& from, int64_t first, int64_t count) {
        const DeviceArray<float> out(count * out_row);
        args.x = from.data() + first * x_row;
        args.weight = OnDevice(weight.view(), stored);
        args.out = out.data();
        args.tokens = count;
        EXPECT_TRUE(product(args, stream()).ok());
        return out.Read();
      };
      const std::vector<float> all = run(cuda::LinearPerHead, in, 0, kMaxRows);
      EXPECT_TRUE(Close(all, want, kTolerance));  // NaN gaps must still be there
      for (const int64_t count : Thinned({0, 1, 2, 7, 8, 9, 17, 33, 65}, 4)) {
        const int64_t first = random_.Uniform(0, kMaxRows - count);
        const std::vector<float> some = run(cuda::LinearPerHead, in, first, count);
        for (int64_t i = 0; i < count * out_row; ++i) {
          const int64_t in_head = i % out_row % (shape.outputs + shape.out_gap);
          ASSERT_TRUE(in_head >= shape.outputs || some[i] == all[first * out_row + i]) << count << " rows";
        }
        // FAST may round x or not, so it is rounded before.
        const std::vector<float> fast = run(cuda::LinearPerHeadFast, rounded_in, first, count);
        EXPECT_TRUE(Close(fast, std::span(want).subspan(first * out_row, count * out_row), kTolerance))
            << count << " rows";
      }
    }
  }
}

}  // namespace
}  // namespace arborist::kernels
