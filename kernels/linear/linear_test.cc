#include "kernels/linear/linear.h"

#include <cmath>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/testing/compare.h"
#include "kernels/testing/lane_dot.h"
#include "kernels/testing/random_tensor.h"

namespace arborist::kernels {
namespace {

using testing::AsConstView;
using testing::AsView;
using testing::Close;
using testing::ForEveryIsaAndThreadCount;
using testing::JoinNeighbours;
using testing::LaneDot;
using testing::Poisoned;
using testing::Random;
using testing::SameBits;
using testing::StoredMatrix;

// fp32 sums of up to a few hundred products against double: each rounding is 6e-8 of the partial sum, and
// random signs keep the total near sqrt(K) of that.
constexpr double kTolerance = 3e-6;

struct Shape {
  int64_t rows, outputs, inputs;
};
constexpr Shape kShapes[] = {{1, 1, 1},   {2, 3, 5},    {3, 8, 12},    {7, 17, 16},  {5, 33, 33},
                             {17, 9, 96}, {65, 40, 31}, {4, 100, 256}, {1, 577, 40}, {33, 24, 100}};

TEST(LinearTest, EveryStoredTypeAndShapeAgreesWithTheOracle) {
  Random random;
  SCOPED_TRACE(random.seed());
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    for (const Shape& shape : kShapes) {
      const StoredMatrix weight(random, dtype, shape.outputs, shape.inputs);
      const std::vector<float> x = random.Normals(shape.rows * shape.inputs);
      std::vector<float> want = Poisoned(shape.rows * shape.outputs);
      std::vector<float> first;
      ASSERT_TRUE(reference::Linear({AsConstView(x, shape.rows, shape.inputs), weight.view(),
                                     AsView(want, shape.rows, shape.outputs)},
                                    {})
                      .ok());
      ForEveryIsaAndThreadCount([&](StreamView stream) {
        std::vector<float> got = Poisoned(shape.rows * shape.outputs);
        ASSERT_TRUE(cpu::Linear({AsConstView(x, shape.rows, shape.inputs), weight.view(),
                                 AsView(got, shape.rows, shape.outputs)},
                                stream)
                        .ok());
        EXPECT_TRUE(Close(got, want, kTolerance));
        first = first.empty() ? got : first;
        EXPECT_TRUE(SameBits(got, first));
      });
    }
  }
}

// Every way through the kernels (few rows, panels, rows too long for a panel, whole and broken steps) against
// the definition in scalar steps.
TEST(LinearTest, EveryBitIsTheDefinitions) {
  Random random;
  SCOPED_TRACE(random.seed());
  constexpr Shape kBitShapes[] = {{1, 9, 33},   {2, 11, 96},  {3, 3, 17},   {5, 21, 100}, {7, 8, 12},
                                  {13, 10, 31}, {1, 2, 4100}, {6, 1, 4100}, {4, 12, 128}, {17, 16, 5}};
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    for (const Shape& shape : kBitShapes) {
      const StoredMatrix weight(random, dtype, shape.outputs, shape.inputs);
      const std::vector<float> x = random.Normals(shape.rows * shape.inputs);
      std::vector<float> want, want_segments;
      for (int64_t t = 0; t < shape.rows; ++t) {
        for (int64_t n = 0; n < shape.outputs; ++n) {
          const float* row = x.data() + t * shape.inputs;
          want.push_back(LaneDot(row, weight.view(), n, 0, shape.inputs));
          float p[8];
          for (int s = 0; s < 8; ++s) {
            p[s] = LaneDot(row, weight.view(), n, SegmentBegin(shape.inputs, s),
                           SegmentBegin(shape.inputs, s + 1));
          }
          want_segments.push_back(JoinNeighbours(p, 8));
        }
      }
      ForEveryIsaAndThreadCount([&](StreamView stream) {
        std::vector<float> got = Poisoned(shape.rows * shape.outputs);
        const View2<const float> in = AsConstView(x, shape.rows, shape.inputs);
        ASSERT_TRUE(cpu::Linear({in, weight.view(), AsView(got, shape.rows, shape.outputs)}, stream).ok());
        EXPECT_TRUE(SameBits(got, want)) << shape.rows << " rows, " << shape.inputs << " inputs";
        got = Poisoned(shape.rows * shape.outputs);
        ASSERT_TRUE(
            cpu::LinearRowParallel(
                {in, weight.view(), AsView(got, shape.rows, shape.outputs), shape.inputs, 0, 8}, stream)
                .ok());
        EXPECT_TRUE(SameBits(got, want_segments)) << shape.rows << " rows, " << shape.inputs << " inputs";
      });
    }
  }
}

TEST(LinearTest, ARowHasTheSameBitsAloneAndAmongAnyNumberOfRows) {
  Random random;
  SCOPED_TRACE(random.seed());
  constexpr int64_t kInputs = 100;
  constexpr int64_t kOutputs = 37;
  const StoredMatrix weight(random, DType::kBF16, kOutputs, kInputs);
  const std::vector<float> x = random.Normals(65 * kInputs);
  ForEveryIsaAndThreadCount([&](StreamView stream) {
    for (const bool row_parallel : {false, true}) {
      std::vector<float> all = Poisoned(65 * kOutputs);
      const auto run = [&](const float* rows, int64_t count, float* out) {
        const View2<const float> in{rows, count, kInputs, kInputs};
        const View2<float> to{out, count, kOutputs, kOutputs};
        return row_parallel ? cpu::LinearRowParallel({in, weight.view(), to, kInputs, 0, 8}, stream)
                            : cpu::Linear({in, weight.view(), to}, stream);
      };
      ASSERT_TRUE(run(x.data(), 65, all.data()).ok());
      for (const int64_t count : {1, 2, 3, 7, 17}) {
        std::vector<float> some = Poisoned(count * kOutputs);
        ASSERT_TRUE(run(x.data() + 11 * kInputs, count, some.data()).ok());
        EXPECT_TRUE(SameBits(some, {all.data() + 11 * kOutputs, static_cast<size_t>(count * kOutputs)}));
      }
    }
  });
}

TEST(LinearTest, RanksOfARowParallelProductJoinToTheSameBits) {
  Random random;
  SCOPED_TRACE(random.seed());
  for (const int64_t inputs : {8, 12, 96, 100, 256, 577}) {
    constexpr int64_t kRows = 5;
    constexpr int64_t kOutputs = 19;
    const StoredMatrix weight(random, DType::kF32, kOutputs, inputs);
    const std::vector<float> x = random.Normals(kRows * inputs);
    const auto* stored = static_cast<const float*>(weight.view().data);
    std::vector<float> want = Poisoned(kRows * kOutputs);
    ASSERT_TRUE(
        reference::LinearRowParallel(
            {AsConstView(x, kRows, inputs), weight.view(), AsView(want, kRows, kOutputs), inputs, 0, 8}, {})
            .ok());
    std::vector<float> whole;
    ForEveryIsaAndThreadCount([&](StreamView stream) {
      for (const int ranks : {1, 2, 4, 8}) {
        const int count = kRowParallelSegments / ranks;
        std::vector<std::vector<float>> parts;
        for (int rank = 0; rank < ranks; ++rank) {
          const int64_t begin = SegmentBegin(inputs, rank * count);
          const int64_t width = SegmentBegin(inputs, (rank + 1) * count) - begin;
          std::vector<float> slice;
          for (int64_t n = 0; n < kOutputs; ++n) {
            slice.insert(slice.end(), stored + n * inputs + begin, stored + n * inputs + begin + width);
          }
          std::vector<float> part = Poisoned(kRows * kOutputs);
          ASSERT_TRUE(cpu::LinearRowParallel({{x.data() + begin, kRows, width, inputs},
                                              {slice.data(), DType::kF32, kOutputs, width},
                                              AsView(part, kRows, kOutputs),
                                              inputs,
                                              rank * count,
                                              count},
                                             stream)
                          .ok());
          parts.push_back(std::move(part));
        }
        while (parts.size() > 1) {  // the balanced tree over ranks
          std::vector<std::vector<float>> joined;
          for (size_t i = 0; i < parts.size(); i += 2) {
            for (size_t j = 0; j < parts[i].size(); ++j) {
              parts[i][j] += parts[i + 1][j];
            }
            joined.push_back(std::move(parts[i]));
          }
          parts = std::move(joined);
        }
        whole = whole.empty() ? parts[0] : whole;
        EXPECT_TRUE(SameBits(parts[0], whole)) << ranks << " ranks, " << inputs << " inputs";
      }
    });
    EXPECT_TRUE(Close(whole, want, kTolerance));
  }
}

TEST(LinearTest, NaNInOneRowStaysInThatRow) {
  Random random;
  const StoredMatrix weight(random, DType::kBF16, 9, 20);
  std::vector<float> x = random.Normals(3 * 20);
  x[25] = std::nanf("");
  std::vector<float> out = Poisoned(3 * 9);
  ThreadPool pool(1);
  ASSERT_TRUE(
      cpu::Linear({AsConstView(x, 3, 20), weight.view(), AsView(out, 3, 9)}, {.threads = &pool}).ok());
  for (int i = 0; i < 27; ++i) {
    EXPECT_EQ(std::isnan(out[i]), i / 9 == 1) << i;
  }
}

TEST(LinearTest, WrongShapesAreNamed) {
  std::vector<float> data(64);
  const WeightView weight{data.data(), DType::kF32, 4, 8};
  LinearArgs args{AsConstView(data, 2, 7), weight, AsView(data, 2, 4)};
  EXPECT_EQ(ValidateLinear(args).message(), "x.columns=7, expected weight.columns=8 > 0");
  args.x = AsConstView(data, 2, 8);
  args.out = AsView(data, 3, 4);
  EXPECT_EQ(ValidateLinear(args).message(), "out.rows=3, expected x.rows=2");
  args.out = AsView(data, 2, 5);
  EXPECT_EQ(ValidateLinear(args).message(), "out.columns=5, expected weight.rows=4 > 0");
  args.out = AsView(data, 2, 4);
  args.weight.dtype = DType::kI32;
  EXPECT_EQ(ValidateLinear(args).message(), "weight.dtype=3, expected F32, BF16 or F16");
  LinearRowParallelArgs segments{AsConstView(data, 2, 8), weight, AsView(data, 2, 4), 8, 0, 3};
  EXPECT_EQ(ValidateLinearRowParallel(segments).message(), "segment_count=3, expected 1, 2, 4 or 8");
  segments.segment_count = 4;
  segments.first_segment = 2;
  EXPECT_EQ(ValidateLinearRowParallel(segments).message(),
            "first_segment=2, expected a multiple of 4 below 8");
  segments.first_segment = 4;
  EXPECT_EQ(ValidateLinearRowParallel(segments).message(),
            "weight.columns=8, expected 4, the inputs of its segments");
}

TEST(LinearTest, NoRowsIsNothingToDo) {
  std::vector<float> data(64);
  ThreadPool pool(1);
  EXPECT_TRUE(cpu::Linear({AsConstView(data, 0, 8), {data.data(), DType::kF32, 4, 8}, AsView(data, 0, 4)},
                          {.threads = &pool})
                  .ok());
}

}  // namespace
}  // namespace arborist::kernels
