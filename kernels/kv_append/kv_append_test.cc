#include "kernels/kv_append/kv_append.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <random>
#include <vector>

namespace arborist::kernels {
namespace {

constexpr auto kPoison = std::byte{0xA5};

struct Case {
  int64_t row_bytes;
  int64_t stride;
  int64_t slots;
  std::vector<std::byte> rows;
  std::vector<int32_t> slot;

  Case(int64_t tokens, int64_t row_bytes, int64_t stride, int64_t slots)
      : row_bytes(row_bytes), stride(stride), slots(slots), rows(tokens * stride), slot(slots) {
    std::mt19937 random(std::random_device{}());
    for (std::byte& byte : rows) {
      byte = static_cast<std::byte>(random());
    }
    std::iota(slot.begin(), slot.end(), 0);
    std::shuffle(slot.begin(), slot.end(), random);
    slot.resize(tokens);
  }

  KvAppendArgs Args(std::vector<std::byte>& plane) const {
    return {.rows = rows.data(),
            .source_stride_bytes = stride,
            .slot = {slot.data(), static_cast<int64_t>(slot.size())},
            .plane = plane.data(),
            .slots = slots,
            .row_bytes = row_bytes};
  }
};

TEST(KvAppendTest, RowsLandInTheirSlotsAndNothingElseIsTouched) {
  for (int threads : {1, 3}) {
    ThreadPool pool(threads);
    for (const Case& c : {Case(0, 8, 8, 4), Case(1, 640, 640, 64), Case(65, 640, 704, 128),
                          Case(300, 2304, 2304, 512), Case(7, 3, 5, 7)}) {
      std::vector<std::byte> plane(c.slots * c.row_bytes, kPoison);
      std::vector<std::byte> expected = plane;
      ASSERT_TRUE(reference::KvAppend(c.Args(expected), {}).ok());
      ASSERT_TRUE(cpu::KvAppend(c.Args(plane), {.threads = &pool}).ok());
      EXPECT_EQ(plane, expected);
      for (size_t token = 0; token < c.slot.size(); ++token) {
        EXPECT_TRUE(std::equal(&plane[c.slot[token] * c.row_bytes],
                               &plane[c.slot[token] * c.row_bytes] + c.row_bytes,
                               c.rows.data() + token * c.stride));
      }
    }
  }
}

TEST(KvAppendTest, ASlotOutsideThePlaneIsRefusedByIndexAndValueBeforeAnythingIsWritten) {
  ThreadPool pool(1);
  for (int32_t bad : {64, 1 << 30}) {
    Case c(3, 16, 16, 64);
    c.slot[2] = bad;
    std::vector<std::byte> plane(c.slots * c.row_bytes, kPoison);
    for (auto* append : {reference::KvAppend, cpu::KvAppend}) {
      const absl::Status status = append(c.Args(plane), {.threads = &pool});
      EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
      EXPECT_THAT(std::string(status.message()),
                  testing::HasSubstr("slot[2]=" + std::to_string(bad) +
                                     ", expected a slot below 64, or a negative one"));
    }
    EXPECT_EQ(std::count(plane.begin(), plane.end(), kPoison), static_cast<int64_t>(plane.size()));
  }
}

TEST(KvAppendTest, ANegativeSlotIsAPaddingRowAndIsSkipped) {
  ThreadPool pool(1);
  Case c(3, 16, 16, 64);
  c.slot = {5, -1, 9};
  for (auto* append : {reference::KvAppend, cpu::KvAppend}) {
    std::vector<std::byte> plane(c.slots * c.row_bytes, kPoison);
    ASSERT_TRUE(append(c.Args(plane), {.threads = &pool}).ok());
    EXPECT_TRUE(std::equal(c.rows.begin(), c.rows.begin() + 16, plane.begin() + 5 * 16));
    EXPECT_TRUE(std::equal(c.rows.begin() + 32, c.rows.end(), plane.begin() + 9 * 16));
    std::fill_n(plane.begin() + 5 * 16, 16, kPoison);
    std::fill_n(plane.begin() + 9 * 16, 16, kPoison);
    EXPECT_EQ(std::count(plane.begin(), plane.end(), kPoison), static_cast<int64_t>(plane.size()));
  }
}

TEST(KvAppendTest, ANarrowPlaneTakesTheNearestBf16WithTiesToEven) {
  ThreadPool pool(1);
  // Exact, a tie down to even, a tie up to even, just above a tie, the largest fp32 (rounds to infinity), -0.
  const std::vector<float> rows = {1.5f, 0x1.01p0f, 0x1.03p0f, 0x1.010002p0f, 0x1.fffffep127f, -0.0f};
  const std::vector<uint16_t> want = {0x3fc0, 0x3f80, 0x3f82, 0x3f81, 0x7f80, 0x8000};
  const std::vector<int32_t> slot = {2};
  for (auto* append : {reference::KvAppend, cpu::KvAppend}) {
    std::vector<uint16_t> plane(4 * 6, 0xabcd);
    ASSERT_TRUE(append({.rows = rows.data(),
                        .source_stride_bytes = 24,
                        .slot = {slot.data(), 1},
                        .plane = plane.data(),
                        .slots = 4,
                        .row_bytes = 12,
                        .narrow = true},
                       {.threads = &pool})
                    .ok());
    EXPECT_EQ(std::vector<uint16_t>(plane.begin() + 12, plane.begin() + 18), want);
    EXPECT_EQ(std::count(plane.begin(), plane.end(), 0xabcd), 18);
  }
}

TEST(KvAppendTest, WrongSizesAndNullAddressesAreRefusedByName) {
  const Case c(2, 16, 16, 8);
  std::vector<std::byte> plane(c.slots * c.row_bytes);
  const auto message = [&](auto change) {
    KvAppendArgs args = c.Args(plane);
    change(args);
    return std::string(ValidateKvAppend(args).message());
  };
  EXPECT_EQ(message([](KvAppendArgs&) {}), "");
  EXPECT_THAT(message([](KvAppendArgs& a) { a.row_bytes = 0; }), testing::HasSubstr("row_bytes=0"));
  EXPECT_THAT(message([](KvAppendArgs& a) { a.source_stride_bytes = 15; }),
              testing::HasSubstr("source_stride_bytes=15, expected at least row_bytes=16"));
  EXPECT_THAT(message([](KvAppendArgs& a) { a.narrow = true; }),
              testing::HasSubstr("source_stride_bytes=16, expected at least 2 * row_bytes=32"));
  EXPECT_THAT(message([](KvAppendArgs& a) {
                a.narrow = true;
                a.row_bytes = 7;
              }),
              testing::HasSubstr("row_bytes=7, expected whole bf16 elements"));
  EXPECT_THAT(message([](KvAppendArgs& a) { a.rows = nullptr; }), testing::HasSubstr("rows=null"));
  EXPECT_THAT(message([](KvAppendArgs& a) { a.plane = nullptr; }), testing::HasSubstr("plane=null"));
  EXPECT_THAT(message([](KvAppendArgs& a) { a.slot.data = nullptr; }), testing::HasSubstr("slot.data=null"));
}

}  // namespace
}  // namespace arborist::kernels
