#include <algorithm>
#include <numeric>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/kv_append/kv_append.h"
#include "kernels/testing/cuda_test.h"
#include "kernels/testing/random_tensor.h"
#include "kernels/testing/small_shapes.h"

namespace arborist::kernels {
namespace {

using namespace testing;  // NOLINT: the test's vocabulary

class KvAppendCudaTest : public CudaTest {
 protected:
  // The device's plane against the oracle's; both start as the same random bytes. Both sides begin `offset`
  // bytes behind a boundary. A quarter of the tokens are padding.
  void ExpectTheOracles(Random& random, int64_t tokens, int64_t row_bytes, int64_t stride, int64_t offset,
                        bool narrow) {
    const int64_t slots = tokens + 5;
    std::vector<int32_t> slot(slots);
    std::iota(slot.begin(), slot.end(), 0);
    std::shuffle(slot.begin(), slot.end(), random.engine());
    slot.resize(tokens);
    for (int32_t& s : slot) {
      s = random.Uniform(0, 3) == 0 ? -1 : s;
    }
    const auto bytes = [&](int64_t count) {
      std::vector<uint8_t> values(count);
      for (uint8_t& value : values) {
        value = static_cast<uint8_t>(random.engine()());
      }
      return values;
    };
    const std::vector<uint8_t> rows = bytes(offset + tokens * stride);
    std::vector<uint8_t> want = bytes(offset + slots * row_bytes);
    const DeviceArray<uint8_t> device_rows(rows), got(want);
    const DeviceArray<int32_t> device_slot(slot);
    KvAppendArgs args{.rows = rows.data() + offset,
                      .source_stride_bytes = stride,
                      .slot = {slot.data(), tokens},
                      .plane = want.data() + offset,
                      .slots = slots,
                      .row_bytes = row_bytes,
                      .narrow = narrow};
    ASSERT_TRUE(reference::KvAppend(args, {}).ok());
    args.rows = device_rows.data() + offset;
    args.slot.data = device_slot.data();
    args.plane = got.data() + offset;
    ASSERT_TRUE(cuda::KvAppend(args, stream()).ok());
    EXPECT_EQ(got.Read(), want) << tokens << " rows of " << row_bytes << " bytes, stride " << stride
                                << ", offset " << offset << (narrow ? ", narrow" : "");
  }
};

TEST_F(KvAppendCudaTest, RowsLandInTheirSlotsByteForByteAtAnyWidthAndAlignment) {
  Random random;
  SCOPED_TRACE(random.seed());
  for (const int64_t tokens : Thinned({0, 1, 7, 65, 512}, 3)) {
    for (const int64_t row_bytes : Thinned({1, 3, 8, 20, 640, 1152, 2304, 14336}, 4)) {
      for (const int64_t gap : Thinned({0, 4, 16, 5}, 2)) {
        for (const int64_t offset : Thinned({0, 1, 4}, 2)) {
          ExpectTheOracles(random, tokens, row_bytes, row_bytes + gap, offset, false);
        }
      }
    }
  }
}

// Random bytes as fp32 hold every kind of value: NaN, infinity, subnormal, ties.
TEST_F(KvAppendCudaTest, NarrowRowsRoundAsTheOracleDoes) {
  Random random;
  SCOPED_TRACE(random.seed());
  for (const int64_t tokens : Thinned({0, 1, 7, 65, 512}, 3)) {
    for (const int64_t columns : Thinned({1, 3, 8, 320, 576, 7168}, 4)) {
      for (const int64_t gap : Thinned({0, 16, 20}, 2)) {
        for (const int64_t offset : {0, 4}) {
          ExpectTheOracles(random, tokens, 2 * columns, 4 * columns + gap, offset, true);
        }
      }
    }
  }
}

TEST_F(KvAppendCudaTest, ASlotPastThePlaneIsSkipped) {
  const DeviceArray<uint8_t> rows(std::vector<uint8_t>(4 * 16, 1)), plane(std::vector<uint8_t>(4 * 16, 9));
  const DeviceArray<int32_t> slot({4, 2, 1 << 30, -(1 << 30)});
  ASSERT_TRUE(cuda::KvAppend({.rows = rows.data(),
                              .source_stride_bytes = 16,
                              .slot = slot.const_view(),
                              .plane = plane.data(),
                              .slots = 4,
                              .row_bytes = 16},
                             stream())
                  .ok());
  std::vector<uint8_t> want(4 * 16, 9);
  std::fill_n(want.begin() + 2 * 16, 16, 1);
  EXPECT_EQ(plane.Read(), want);
}

}  // namespace
}  // namespace arborist::kernels
