#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "kernels/linear/dense_cuda.h"
#include "kernels/linear/linear.h"
#include "kernels/testing/compare.h"
#include "kernels/testing/cuda_test.h"
#include "kernels/testing/random_tensor.h"
#include "kernels/testing/small_shapes.h"

namespace arborist::kernels {
namespace {

using namespace testing;  // NOLINT: the test's vocabulary

class LinearCudaTest : public CudaTest {
 protected:
  Random random_;
};

// What the tensor cores see: bf16 weights are multiplied with x rounded to
// bf16.
std::vector<float> AsMultiplied(const std::vector<float>& x, DType dtype) {
  std::vector<float> rounded = x;
  if (dtype == DType::kBF16) {
    for (float& value : rounded) {
      value = ToFloat(ToBFloat16(value));
    }
  }
  return rounded;
}

// Against sums in double. The products are exact in fp32. A tensor core cuts
// each of its inputs / 16 sums off at a unit (2^-23) of the partial sum, always
// downwards, and partial sums of random signs stay below the largest result.
// fp32 chains are shorter and round.
double Tolerance(int64_t inputs) { return 3e-6 + static_cast<double>(inputs) / 16 * 0x1p-23; }

std::vector<float> Oracle(const std::vector<float>& x, const WeightView& weight, int64_t rows) {
  const std::vector<float> rounded = AsMultiplied(x, weight.dtype);
  std::vector<float> want = Poisoned(rows * weight.rows);
  EXPECT_TRUE(reference::Linear(
                  {AsConstView(rounded, rows, weight.columns), weight, AsView(want, rows, weight.rows)}, {})
                  .ok());
  return want;
}

struct Shape {
  int64_t rows, outputs, inputs;
};

TEST_F(LinearCudaTest, EveryStoredTypeAndShapeAgreesWithTheOracle) {
  SCOPED_TRACE(random_.seed());
  constexpr Shape kShapes[] = {{1, 1, 1},     {2, 3, 5},      {3, 8, 12},    {7, 17, 16},  {5, 33, 33},
                               {17, 9, 96},   {65, 40, 31},   {4, 100, 256}, {1, 577, 40}, {33, 24, 100},
                               {9, 64, 64},   {72, 130, 264}, {73, 65, 72},  {145, 7, 48}, {40, 129, 1000},
                               {9, 200, 513}, {1, 300, 4104}, {20, 70, 1535}};
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    for (const Shape& shape : Thinned(kShapes, 9)) {
      SCOPED_TRACE(::testing::Message() << Name(dtype) << " [" << shape.rows << ", " << shape.inputs
                                        << "] x [" << shape.outputs << ", " << shape.inputs << "]");
      const StoredMatrix weight(random_, dtype, shape.outputs, shape.inputs);
      const std::vector<float> x = random_.Normals(shape.rows * shape.inputs);
      const DeviceArray<uint8_t> stored(BytesOf(weight.view()));
      const DeviceArray<float> in(x);
      const DeviceArray<float> out(shape.rows * shape.outputs);
      ASSERT_TRUE(cuda::Linear({in.const_view(shape.rows, shape.inputs), OnDevice(weight.view(), stored),
                                out.view(shape.rows, shape.outputs)},
                               stream())
                      .ok());
      EXPECT_TRUE(Close(out.Read(), Oracle(x, weight.view(), shape.rows), Tolerance(shape.inputs)));
    }
  }
}

// The row counts of a step: one row, partly filled tiles, every bucket and its
// neighbours, a prompt.
constexpr int64_t kRowCounts[] = {1,  2,  3,  7,  8,  9,  16,  17,  24,  33,
                                  40, 41, 64, 65, 80, 81, 129, 130, 145, 512};

// Shapes of every number of ranks that a plan has, and those that copy weights
// element by element.
TEST_F(LinearCudaTest, ARowHasTheSameBitsAloneAndAmongAnyNumberOfRowsAndAtAnyAddress) {
  SCOPED_TRACE(random_.seed());
  const int64_t all_rows = Small(512, 80);
  constexpr Shape kShapes[] = {{512, 37, 100},   {512, 256, 256}, {512, 90, 520},  {512, 130, 1024},
                               {512, 100, 2056}, {512, 65, 2047}, {512, 300, 3000}};
  for (const DType dtype : {DType::kBF16, DType::kF32, DType::kF16}) {
    for (const Shape& shape : Thinned(kShapes, 3)) {
      SCOPED_TRACE(::testing::Message() << Name(dtype) << " " << shape.outputs << " x " << shape.inputs);
      const StoredMatrix weight(random_, dtype, shape.outputs, shape.inputs);
      const std::vector<float> x = random_.Normals(all_rows * shape.inputs);
      const DeviceArray<uint8_t> stored(BytesOf(weight.view()));
      const DeviceArray<float> in(x);
      const WeightView on_device = OnDevice(weight.view(), stored);
      const DeviceArray<float> all(all_rows * shape.outputs);
      ASSERT_TRUE(
          cuda::Linear({in.const_view(all_rows, shape.inputs), on_device, all.view(all_rows, shape.outputs)},
                       stream())
              .ok());
      const std::vector<float> want = all.Read();
      for (const int64_t count : Thinned(kRowCounts, 3)) {
        if (count > all_rows) {
          continue;
        }
        const int64_t first = random_.Uniform(0, all_rows - count);
        // The same rows one float further on, in wider rows; and stored weights
        // two bytes further on.
        const int64_t stride = shape.inputs + 3;
        std::vector<float> moved = random_.Normals(1 + count * stride);
        for (int64_t t = 0; t < count; ++t) {
          std::memcpy(moved.data() + 1 + t * stride, x.data() + (first + t) * shape.inputs,
                      static_cast<size_t>(shape.inputs) * sizeof(float));
        }
        std::vector<uint8_t> bytes = BytesOf(weight.view());
        bytes.insert(bytes.begin(), ByteSize(dtype), uint8_t{0});
        const DeviceArray<float> moved_in(moved);
        const DeviceArray<uint8_t> moved_stored(bytes);
        WeightView moved_weight = on_device;
        moved_weight.data = moved_stored.data() + ByteSize(dtype);
        const View2<const float> rows{in.data() + first * shape.inputs, count, shape.inputs, shape.inputs};
        const View2<const float> moved_rows{moved_in.data() + 1, count, shape.inputs, stride};
        const std::vector<float> expected(want.begin() + first * shape.outputs,
                                          want.begin() + (first + count) * shape.outputs);
        for (const bool move_x : {false, true}) {
          for (const bool move_weight : {false, true}) {
            const DeviceArray<float> some(count * shape.outputs);
            ASSERT_TRUE(cuda::Linear({move_x ? moved_rows : rows, move_weight ? moved_weight : on_device,
                                      some.view(count, shape.outputs)},
                                     stream())
                            .ok());
            EXPECT_TRUE(SameBits(some.Read(), expected))
                << count << " rows" << (move_x ? ", x moved" : "") << (move_weight ? ", weight moved" : "");
          }
        }
      }
    }
  }
}

// More blocks than run at once take other tiles.
TEST_F(LinearCudaTest, RowsOfATallWeightHaveTheSameBitsAmongAnyNumberOfRows) {
  SCOPED_TRACE(random_.seed());
  constexpr int64_t kRows = 70, kOutputs = 17000, kInputs = 168;
  const StoredMatrix weight(random_, DType::kBF16, kOutputs, kInputs);
  const std::vector<float> x = random_.Normals(kRows * kInputs);
  const DeviceArray<uint8_t> stored(BytesOf(weight.view()));
  const DeviceArray<float> in(x), all(kRows * kOutputs);
  const WeightView on_device = OnDevice(weight.view(), stored);
  ASSERT_TRUE(
      cuda::Linear({in.const_view(kRows, kInputs), on_device, all.view(kRows, kOutputs)}, stream()).ok());
  const std::vector<float> want = all.Read();
  EXPECT_TRUE(Close(want, Oracle(x, weight.view(), kRows), Tolerance(kInputs)));
  for (const int64_t count : {1, 9, 17, 25, 33, 40, 41}) {
    const int64_t first = random_.Uniform(0, kRows - count);
    const DeviceArray<float> out(count * kOutputs);
    ASSERT_TRUE(
        cuda::Linear(
            {{in.data() + first * kInputs, count, kInputs, kInputs}, on_device, out.view(count, kOutputs)},
            stream())
            .ok());
    EXPECT_TRUE(SameBits(out.Read(), {want.data() + first * kOutputs, static_cast<size_t>(count * kOutputs)}))
        << count << " rows";
  }
}

struct Tile {
  int rows;
  int tokens;
  bool two_an_sm = true;
  bool operator==(const Tile&) const = default;
};
constexpr Tile kTiles[] = {{64, 8}, {64, 16}, {64, 24}, {64, 40}, {64, 40, false}, {128, 40}, {128, 64}};

TEST_F(LinearCudaTest, TheTileIsNoPartOfTheBitsAndTheRanksAreTheShapes) {
  SCOPED_TRACE(random_.seed());
  constexpr Shape kShapes[] = {{9, 130, 1000}, {33, 64, 2048}, {65, 70, 2056}, {1, 300, 4096}};
  for (const Shape& shape : Thinned(kShapes, 2)) {
    const StoredMatrix weight(random_, DType::kBF16, shape.outputs, shape.inputs);
    const std::vector<float> x = random_.Normals(shape.rows * shape.inputs);
    const DeviceArray<uint8_t> stored(BytesOf(weight.view()));
    const DeviceArray<float> in(x);
    const std::vector<float> want = Oracle(x, weight.view(), shape.rows);
    for (const int ranks : Thinned({1, 2, 4, 8}, 2)) {
      std::vector<float> first;
      for (const auto& [rows, tokens, two_an_sm] : kTiles) {
        const DeviceArray<float> out(shape.rows * shape.outputs);
        const absl::Status status = cuda::DenseMma(
            {.x = in.data(),
             .x_row_stride = shape.inputs,
             .x_head_stride = 0,
             .weight = OnDevice(weight.view(), stored),
             .out = out.data(),
             .out_row_stride = shape.outputs,
             .out_head_stride = 0,
             .tokens = shape.rows,
             .heads = 1,
             .outputs = shape.outputs},
            {.ranks = ranks, .rows = rows, .tokens = tokens, .two_an_sm = two_an_sm}, stream().cuda_stream);
        if (!status.ok() && ranks > 1) {
          break;  // a device without clusters
        }
        ASSERT_TRUE(status.ok()) << status;
        const std::vector<float> got = out.Read();
        EXPECT_TRUE(Close(got, want, Tolerance(shape.inputs)))
            << ranks << " ranks, " << rows << " rows, " << tokens << " tokens";
        first = first.empty() ? got : first;
        EXPECT_TRUE(SameBits(got, first)) << ranks << " ranks, " << rows << " rows, " << tokens << " tokens";
      }
    }
  }
  for (const bool clusters : {false, true}) {
    for (const int64_t outputs : {1, 96, 384, 576, 2304, 7168, 163840}) {
      for (const int64_t inputs : {1, 256, 1024, 7168, 18432}) {
        const int ranks = cuda::PlanDense(1, outputs, inputs, 1, clusters).ranks;
        EXPECT_TRUE(clusters || ranks == 1);
        for (const int64_t count : kRowCounts) {
          const cuda::DensePlan plan = cuda::PlanDense(1, outputs, inputs, count, clusters);
          EXPECT_EQ(plan.ranks, ranks);
          EXPECT_NE(std::find(std::begin(kTiles), std::end(kTiles), Tile{plan.rows, plan.tokens}),
                    std::end(kTiles))
              << plan.rows << " x " << plan.tokens;
        }
      }
    }
  }
}

// x is a bf16 value here, so that it does not matter whether the chosen way
// rounds it.
TEST_F(LinearCudaTest, FastProductsAgreeWithTheOracleForAnyNumberOfRowsAndAtAnyAddress) {
  SCOPED_TRACE(random_.seed());
  constexpr int64_t kRows = 9;
  constexpr Shape kShapes[] = {
      {kRows, 1, 8},       {kRows, 9, 256},  {kRows, 575, 264},  {kRows, 37, 1000},   {kRows, 4097, 520},
      {kRows, 4100, 1024}, {kRows, 70, 513}, {kRows, 130, 4104}, {kRows, 4099, 2056}, {kRows, 33, 7168}};
  for (const DType dtype : {DType::kBF16, DType::kF32}) {
    for (const Shape& shape : Thinned(kShapes, 4)) {
      SCOPED_TRACE(::testing::Message() << Name(dtype) << " " << shape.outputs << " x " << shape.inputs);
      const StoredMatrix weight(random_, dtype, shape.outputs, shape.inputs);
      const std::vector<float> x = AsMultiplied(random_.Normals(kRows * shape.inputs), DType::kBF16);
      const std::vector<float> all = Oracle(x, weight.view(), kRows);
      const DeviceArray<uint8_t> stored(BytesOf(weight.view()));
      std::vector<float> moved(1);
      moved.insert(moved.end(), x.begin(), x.end());
      const DeviceArray<float> in(x), moved_in(moved);
      for (const int64_t count : Thinned({0, 1, 2, 3, 4, 5, 7, 8, 9}, 5)) {
        const std::vector<float> want(all.begin(), all.begin() + count * shape.outputs);
        for (const float* from : {in.data(), moved_in.data() + 1}) {
          const DeviceArray<float> out(count * shape.outputs);
          ASSERT_TRUE(cuda::LinearFast({{from, count, shape.inputs, shape.inputs},
                                        OnDevice(weight.view(), stored),
                                        out.view(count, shape.outputs)},
                                       stream())
                          .ok());
          EXPECT_TRUE(Close(out.Read(), want, Tolerance(shape.inputs))) << count << " rows";
        }
      }
    }
  }
}

TEST_F(LinearCudaTest, WiderOutputRowsKeepTheirGapsAndNoRowsAreFine) {
  SCOPED_TRACE(random_.seed());
  for (const DType dtype : {DType::kBF16, DType::kF32}) {
    constexpr int64_t kRows = 11, kFewRows = 3, kOutputs = 70, kInputs = 600, kStride = 77;
    const StoredMatrix weight(random_, dtype, kOutputs, kInputs);
    const std::vector<float> x = AsMultiplied(random_.Normals(kRows * kInputs), DType::kBF16);
    const DeviceArray<uint8_t> stored(BytesOf(weight.view()));
    const DeviceArray<float> in(x);
    const DeviceArray<float> out(kRows * kStride);
    const WeightView on_device = OnDevice(weight.view(), stored);
    ASSERT_TRUE(
        cuda::Linear({in.const_view(0, kInputs), on_device, {out.data(), 0, kOutputs, kStride}}, stream())
            .ok());
    const auto args = [&](const DeviceArray<float>& to, int64_t rows) {
      return LinearRowParallelArgs{
          in.const_view(rows, kInputs), on_device, {to.data(), rows, kOutputs, kStride}, kInputs, 0, 8};
    };
    ASSERT_TRUE(cuda::LinearRowParallel(args(out, kRows), stream()).ok());
    const DeviceArray<float> fast(kRows * kStride);
    ASSERT_TRUE(cuda::LinearRowParallelFast(args(fast, kFewRows), stream()).ok());
    const std::vector<float> dense = Oracle(x, weight.view(), kRows);
    std::vector<float> want = Poisoned(kRows * kStride), few = want;
    for (int64_t t = 0; t < kRows; ++t) {
      std::copy_n(dense.begin() + t * kOutputs, kOutputs, want.begin() + t * kStride);
      std::copy_n(dense.begin() + t * kOutputs, t < kFewRows ? kOutputs : 0, few.begin() + t * kStride);
    }
    EXPECT_TRUE(Close(out.Read(), want,
                      Tolerance(kInputs)));  // NaN gaps must still be there
    EXPECT_TRUE(Close(fast.Read(), few, Tolerance(kInputs)));
  }
}

TEST_F(LinearCudaTest, NaNInOneRowStaysInThatRow) {
  for (const DType dtype : {DType::kBF16, DType::kF32, DType::kF16}) {
    const StoredMatrix weight(random_, dtype, 9, 20);
    std::vector<float> x = random_.Normals(3 * 20);
    x[25] = std::nanf("");
    const DeviceArray<uint8_t> stored(BytesOf(weight.view()));
    const DeviceArray<float> in(x);
    const DeviceArray<float> out(3 * 9);
    ASSERT_TRUE(
        cuda::Linear({in.const_view(3, 20), OnDevice(weight.view(), stored), out.view(3, 9)}, stream()).ok());
    const std::vector<float> got = out.Read();
    for (int i = 0; i < 27; ++i) {
      EXPECT_EQ(std::isnan(got[i]), i / 9 == 1) << i;
    }
  }
}

}  // namespace
}  // namespace arborist::kernels
