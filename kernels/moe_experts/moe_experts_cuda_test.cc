#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <numeric>
#include <vector>

#include "common/base/math.h"
#include "gtest/gtest.h"
#include "kernels/moe_experts/moe_experts.h"
#include "kernels/testing/compare.h"
#include "kernels/testing/cuda_test.h"
#include "kernels/testing/random_tensor.h"
#include "kernels/testing/small_shapes.h"

namespace arborist::kernels {
namespace {

using namespace testing;  // NOLINT: the test's vocabulary

struct Shape {
  int64_t hidden, width, shared_width;  // shared_width 0: no shared expert
  int experts, top_k;
};

// The same random experts on the host and on the device. `misalign` bytes move every matrix off its 256-byte
// boundary.
class Weights {
 public:
  Weights(Random& random, DType dtype, const Shape& shape, int64_t misalign = 0)
      : shape_(shape), dtype_(dtype) {
    const float scale = 1.0f / std::sqrt(static_cast<float>(shape.hidden));
    std::vector<uint8_t> bytes;
    std::vector<int64_t> offsets;
    for (int e = 0; e <= shape.experts; ++e) {
      const int64_t width = e < shape.experts ? shape.width : shape.shared_width;
      for (const bool down : {false, false, true}) {
        matrices_.push_back(std::make_unique<StoredMatrix>(random, dtype, down ? shape.hidden : width,
                                                           down ? width : shape.hidden, scale));
        const std::vector<uint8_t> matrix = BytesOf(matrices_.back()->view());
        offsets.push_back(RoundUp(static_cast<int64_t>(bytes.size()), 256) + misalign);
        bytes.resize(static_cast<size_t>(offsets.back()), 0xff);
        bytes.insert(bytes.end(), matrix.begin(), matrix.end());
      }
    }
    memory_ = std::make_unique<DeviceArray<uint8_t>>(bytes);
    for (int e = 0; e <= shape.experts; ++e) {
      const ExpertWeights host{matrices_[3 * e]->view(), matrices_[3 * e + 1]->view(),
                               matrices_[3 * e + 2]->view()};
      ExpertWeights device = host;
      device.gate.data = memory_->data() + offsets[3 * e];
      device.up.data = memory_->data() + offsets[3 * e + 1];
      device.down.data = memory_->data() + offsets[3 * e + 2];
      host_.push_back(host);
      device_.push_back(device);
    }
    table_ = std::make_unique<DeviceArray<ExpertWeights>>(device_);
  }

  const Shape& shape() const { return shape_; }
  DType dtype() const { return dtype_; }
  // Everything but rows, memory of the call and live_rows.
  MoeExpertsArgs Args(bool device) const {
    MoeExpertsArgs args;
    args.experts = {device ? table_->data() : host_.data(), shape_.experts};
    args.weight_dtype = dtype_;
    args.width = shape_.width;
    args.shared = shape_.shared_width == 0 ? nullptr : &(device ? device_ : host_).back();
    args.full_width = shape_.width;
    args.full_shared_width = shape_.shared_width;
    return args;
  }

 private:
  Shape shape_;
  DType dtype_;
  std::vector<std::unique_ptr<StoredMatrix>> matrices_;
  std::unique_ptr<DeviceArray<uint8_t>> memory_;
  std::vector<ExpertWeights> host_, device_;
  std::unique_ptr<DeviceArray<ExpertWeights>> table_;
};

struct Rows {
  int64_t count = 0;
  int64_t top_k = 0;
  std::vector<float> x;
  std::vector<int32_t> expert;
  std::vector<float> weight;

  Rows Slice(int64_t first, int64_t rows, int64_t hidden) const {
    return {rows, top_k, std::vector<float>(x.begin() + first * hidden, x.begin() + (first + rows) * hidden),
            std::vector<int32_t>(expert.begin() + first * top_k, expert.begin() + (first + rows) * top_k),
            std::vector<float>(weight.begin() + first * top_k, weight.begin() + (first + rows) * top_k)};
  }
};

// Rows choose among the first `used` experts. x is already what bf16 holds: the tensor cores round it so.
Rows RandomRows(Random& random, const Shape& shape, int64_t count, int used) {
  Rows rows{
      count, shape.top_k, random.Normals(count * shape.hidden), {}, random.Normals(count * shape.top_k)};
  for (float& x : rows.x) {
    x = ToFloat(ToBFloat16(x));
  }
  for (int64_t t = 0; t < count; ++t) {
    std::vector<int32_t> ids(static_cast<size_t>(used));
    std::iota(ids.begin(), ids.end(), 0);
    std::shuffle(ids.begin(), ids.end(), random.engine());
    std::sort(ids.begin(), ids.begin() + shape.top_k);
    rows.expert.insert(rows.expert.end(), ids.begin(), ids.begin() + shape.top_k);
  }
  return rows;
}

struct Variant {
  int32_t live = -1;      // -1: no live_rows
  int64_t x_padding = 0;  // elements between the rows of x
  bool with_shared = true;
};

class MoeExpertsCudaTest : public CudaTest {
 protected:
  std::vector<float> OnCuda(const Weights& weights, const Rows& rows, const Variant& variant = {}) {
    const Shape& shape = weights.shape();
    const int64_t stride = shape.hidden + variant.x_padding;
    std::vector<float> padded(static_cast<size_t>(rows.count * stride), NAN);
    for (int64_t t = 0; t < rows.count; ++t) {
      std::copy_n(rows.x.begin() + t * shape.hidden, shape.hidden, padded.begin() + t * stride);
    }
    DeviceArray<float> x(padded), weight(rows.weight), out(rows.count * shape.hidden);
    DeviceArray<int32_t> expert(rows.expert), live(std::vector<int32_t>{variant.live});
    DeviceArray<std::byte> scratch(static_cast<int64_t>(MoeExpertsCudaScratchBytes(
        rows.count, static_cast<int>(rows.top_k), shape.width, shape.shared_width)));
    MoeExpertsArgs args = weights.Args(true);
    args.x = {x.data(), rows.count, shape.hidden, stride};
    args.expert = expert.const_view(rows.count, rows.top_k);
    args.weight = weight.const_view(rows.count, rows.top_k);
    args.live_rows = variant.live < 0 ? nullptr : live.data();
    args.shared = variant.with_shared ? args.shared : nullptr;
    args.out = out.view(rows.count, shape.hidden);
    args.scratch = scratch.view();
    EXPECT_TRUE(cuda::MoeExperts(args, stream()).ok());
    Finish();
    scratch.Read();  // checks the bytes behind it
    return out.Read();
  }

  static std::vector<float> Oracle(const Weights& weights, const Rows& rows) {
    const Shape& shape = weights.shape();
    std::vector<float> out = Poisoned(rows.count * shape.hidden);
    std::vector<std::byte> scratch(MoeExpertsScratchBytes(rows.count, shape.hidden, shape.experts,
                                                          static_cast<int>(rows.top_k), shape.width,
                                                          shape.shared_width));
    MoeExpertsArgs args = weights.Args(false);
    args.x = AsConstView(rows.x, rows.count, shape.hidden);
    args.expert = {rows.expert.data(), rows.count, rows.top_k, rows.top_k};
    args.weight = AsConstView(rows.weight, rows.count, rows.top_k);
    args.out = AsView(out, rows.count, shape.hidden);
    args.scratch = {scratch.data(), static_cast<int64_t>(scratch.size())};
    EXPECT_TRUE(reference::MoeExperts(args, {}).ok());
    return out;
  }

  // fp32 and fp16 weights: three chained fp32 sums of up to 300 products each. bf16 weights: the inner values
  // are rounded to bf16, at most 2^-9 of each; the oracle does not do that. Where few inner values carry an
  // output nothing averages that out, and the weighted experts add theirs.
  static double Tolerance(DType dtype) { return dtype == DType::kBF16 ? 5e-3 : 1e-5; }
};

constexpr DType kDTypes[] = {DType::kBF16, DType::kF32, DType::kF16};
constexpr Shape kShapes[] = {
    {256, 96, 96, 16, 4}, {64, 16, 0, 7, 3},     {40, 12, 24, 7, 3},
    {33, 5, 1, 4, 1},     {100, 33, 66, 9, 9},   {8, 1, 0, 1, 1},
    {1096, 24, 0, 40, 2}, {136, 130, 20, 11, 6}, {72, 8, 8, 1024, 8},
};

TEST_F(MoeExpertsCudaTest, EveryShapeAgreesWithTheOracle) {
  Random random;
  SCOPED_TRACE(random.seed());
  for (const DType dtype : kDTypes) {
    for (const Shape& shape : Thinned(kShapes, 4)) {
      const Weights weights(random, dtype, shape);
      for (const int64_t count : Thinned({1, 2, 9, 17, Small(70, 20)}, 2)) {
        SCOPED_TRACE(::testing::Message() << Name(dtype) << " hidden " << shape.hidden << " width "
                                          << shape.width << " rows " << count);
        // Some experts without rows.
        const int used = std::max(shape.top_k, shape.experts - 2);
        const Rows rows = RandomRows(random, shape, count, used);
        EXPECT_TRUE(Close(OnCuda(weights, rows), Oracle(weights, rows), Tolerance(dtype)));
      }
    }
  }
}

// A row's sum over its experts, from the experts' results one at a time: weight 1 alone gives the product
// itself, so the host can chain them in the contract's order. No tolerance.
TEST_F(MoeExpertsCudaTest, EveryBitIsTheChainOverExpertsInAscendingOrderThenTheSharedOne) {
  Random random;
  SCOPED_TRACE(random.seed());
  for (const DType dtype : kDTypes) {
    for (const Shape& shape :
         Thinned({Shape{256, 96, 96, 16, 4}, Shape{100, 33, 66, 9, 9}, Shape{64, 16, 0, 7, 3}}, 2)) {
      const Weights weights(random, dtype, shape);
      const Rows rows = RandomRows(random, shape, 19, shape.experts);
      std::vector<float> want(rows.x.size(), 0.0f);
      Rows one = rows;
      one.top_k = 1;
      one.weight.assign(static_cast<size_t>(rows.count), 1.0f);
      for (int i = 0; i < shape.top_k; ++i) {
        one.expert.clear();
        for (int64_t t = 0; t < rows.count; ++t) {
          one.expert.push_back(rows.expert[t * shape.top_k + i]);
        }
        const std::vector<float> product = OnCuda(weights, one, {.with_shared = false});
        for (size_t n = 0; n < want.size(); ++n) {
          const int64_t t = static_cast<int64_t>(n) / shape.hidden;
          want[n] = std::fma(rows.weight[t * shape.top_k + i], product[n], want[n]);
        }
      }
      if (shape.shared_width > 0) {
        const std::vector<float> product = OnCuda(weights, {rows.count, 0, rows.x, {}, {}});
        std::transform(want.begin(), want.end(), product.begin(), want.begin(), std::plus<float>());
      }
      EXPECT_TRUE(SameBits(OnCuda(weights, rows), want)) << Name(dtype) << " width " << shape.width;
    }
  }
}

TEST_F(MoeExpertsCudaTest, ARowHasTheSameBitsAloneAndInAnyBatchOfOneTo600Rows) {
  Random random;
  SCOPED_TRACE(random.seed());
  for (const DType dtype : kDTypes) {
    for (const Shape& shape : {Shape{128, 40, 24, 16, 4}, Shape{600, 17, 0, 12, 2}}) {
      const Weights weights(random, dtype, shape);
      // More than one launch takes, and more on one expert than an item has rows.
      const int64_t most = Small(600, 80);
      const Rows rows = RandomRows(random, shape, most, shape.experts);
      const std::vector<float> all = OnCuda(weights, rows);
      for (const int64_t count : Thinned({1, 2, 7, 8, 9, 16, 17, 64, 65, 257, 512, 513}, 5)) {
        if (count > most) {
          continue;
        }
        const int64_t first = random.Uniform(0, most - count);
        const std::vector<float> some = OnCuda(weights, rows.Slice(first, count, shape.hidden));
        EXPECT_TRUE(SameBits(some, {all.data() + first * shape.hidden, some.size()}))
            << Name(dtype) << " rows " << first << " + " << count;
      }
    }
  }
}

// The kernels of up to eight rows, with as many outputs as give every multiprocessor a block: up to 32
// choices one warp sorts, more all of a block's.
TEST_F(MoeExpertsCudaTest, FewRowsWithFewAndManyChoicesAreRowsOfALargerBatchWhateverIsLive) {
  Random random;
  SCOPED_TRACE(random.seed());
  const Shape shape{2176, 16, 16, 40, 8};
  const Weights weights(random, DType::kBF16, shape);
  constexpr int64_t kMost = 24;
  const Rows rows = RandomRows(random, shape, kMost, shape.experts);
  const std::vector<float> all = OnCuda(weights, rows);
  EXPECT_TRUE(Close(all, Oracle(weights, rows), Tolerance(DType::kBF16)));
  for (const int64_t count : Thinned<int64_t>({1, 2, 3, 4, 5, 6, 7, 8, 9}, 4)) {
    const int64_t first = random.Uniform(0, kMost - count);
    std::vector<float> want(all.begin() + first * shape.hidden, all.begin() + (first + count) * shape.hidden);
    Rows some = rows.Slice(first, count, shape.hidden);
    EXPECT_TRUE(SameBits(OnCuda(weights, some), want)) << count << " rows from " << first;
    for (int64_t live = count; live >= 0; --live) {
      std::fill(some.expert.begin() + live * shape.top_k, some.expert.end(), 1 << 30);
      std::fill(want.begin() + live * shape.hidden, want.end(), 0.0f);
      EXPECT_TRUE(SameBits(OnCuda(weights, some, {.live = static_cast<int32_t>(live)}), want))
          << live << " live of " << count << " rows from " << first;
    }
  }
}

TEST_F(MoeExpertsCudaTest, NeighboursOnTheSameExpertChangeNothingNorDoNansAmongThem) {
  Random random;
  SCOPED_TRACE(random.seed());
  const Shape shape{200, 48, 32, 12, 3};
  for (const DType dtype : kDTypes) {
    const Weights weights(random, dtype, shape);
    Rows rows = RandomRows(random, shape, 150, shape.experts);
    for (int64_t t = 1; t < rows.count; ++t) {  // all rows on the experts of the first
      std::copy_n(rows.expert.begin(), shape.top_k, rows.expert.begin() + t * shape.top_k);
    }
    for (int64_t i = 0; i < shape.hidden; i += 3) {
      rows.x[77 * shape.hidden + i] = NAN;
    }
    const std::vector<float> all = OnCuda(weights, rows);
    for (const int64_t t : {0, 1, 76, 78, 149}) {
      const std::vector<float> alone = OnCuda(weights, rows.Slice(t, 1, shape.hidden));
      EXPECT_TRUE(SameBits(alone, {all.data() + t * shape.hidden, alone.size()})) << Name(dtype) << " " << t;
      EXPECT_TRUE(Close(alone, Oracle(weights, rows.Slice(t, 1, shape.hidden)), Tolerance(dtype)));
    }
  }
}

TEST_F(MoeExpertsCudaTest, PaddingRowsAreZeroAndChooseNothing) {
  Random random;
  SCOPED_TRACE(random.seed());
  const Shape shape{96, 24, 16, 8, 2};
  for (const DType dtype : kDTypes) {
    const Weights weights(random, dtype, shape);
    for (const int64_t count : Thinned({1, 20, Small(530, 60)}, 2)) {
      const Rows rows = RandomRows(random, shape, count, shape.experts);
      std::vector<float> want = OnCuda(weights, rows);
      for (int64_t live = count; live >= 0; live -= std::max<int64_t>(1, count / 3)) {
        Rows padded = rows;
        std::fill(padded.expert.begin() + live * shape.top_k, padded.expert.end(), 1 << 30);
        std::fill(want.begin() + live * shape.hidden, want.end(), 0.0f);
        EXPECT_TRUE(SameBits(OnCuda(weights, padded, {.live = static_cast<int32_t>(live)}), want))
            << Name(dtype) << " live " << live << " of " << count;
      }
    }
  }
}

TEST_F(MoeExpertsCudaTest, WeightsAndRowsThatBeginAnywhereGiveTheSameBits) {
  Random random;
  for (const DType dtype : kDTypes) {
    for (const Shape& shape : {Shape{128, 32, 32, 6, 2}, Shape{33, 5, 7, 6, 2}}) {
      const uint64_t seed = random.seed() + static_cast<uint64_t>(shape.hidden);
      SCOPED_TRACE(seed);
      Random first(seed), second(seed);
      const Weights aligned(first, dtype, shape);
      const Weights moved(second, dtype, shape, static_cast<int64_t>(ByteSize(dtype)));
      const Rows rows = RandomRows(random, shape, 21, shape.experts);
      const std::vector<float> want = OnCuda(aligned, rows);
      EXPECT_TRUE(SameBits(OnCuda(moved, rows), want)) << Name(dtype);
      EXPECT_TRUE(SameBits(OnCuda(aligned, rows, {.x_padding = 1}), want)) << Name(dtype);
      EXPECT_TRUE(SameBits(OnCuda(aligned, rows, {.x_padding = 4}), want)) << Name(dtype);
    }
  }
}

// A slice of Kimi K2 on eight ranks with fewer experts: rows in pieces as large as a block can keep.
TEST_F(MoeExpertsCudaTest, LongRowsAgreeWithTheOracleAndHaveTheSameBitsInLargePieces) {
  Random random;
  SCOPED_TRACE(random.seed());
  const int64_t width = Small(256, 64);
  const Shape shape{7168, width, width, 8, 2};
  const Weights weights(random, DType::kBF16, shape);
  const int most = Small(530, 40), tile = Small(65, 20);
  const Rows rows = RandomRows(random, shape, most, shape.experts);
  const std::vector<float> all = OnCuda(weights, rows);
  for (const auto& [first, count] :
       {std::pair{0, 3}, {most - 19, 2}, {most / 14, tile}, {17, 1}, {12, 8}, {10, 9}, {1, most - 18}}) {
    const Rows some = rows.Slice(first, count, shape.hidden);
    const std::vector<float> got = OnCuda(weights, some);
    EXPECT_TRUE(SameBits(got, {all.data() + first * shape.hidden, got.size()})) << first << " + " << count;
    if (count <= 3) {
      EXPECT_TRUE(Close(got, Oracle(weights, some), Tolerance(DType::kBF16)));
    }
  }
}

TEST_F(MoeExpertsCudaTest, NoRowsIsNoWorkAndTooLittleScratchIsNamed) {
  Random random;
  const Shape shape{16, 8, 8, 4, 2};
  const Weights weights(random, DType::kBF16, shape);
  EXPECT_TRUE(OnCuda(weights, {0, 2, {}, {}, {}}).empty());
  DeviceArray<float> x(16), out(16);
  DeviceArray<int32_t> expert(std::vector<int32_t>{0, 1});
  MoeExpertsArgs args = weights.Args(true);
  args.x = x.const_view(1, 16);
  args.expert = expert.const_view(1, 2);
  args.weight = x.const_view(1, 2);
  args.out = out.view(1, 16);
  EXPECT_EQ(cuda::MoeExperts(args, stream()).message(), "scratch.size=0, expected at least 128");
}

}  // namespace
}  // namespace arborist::kernels
