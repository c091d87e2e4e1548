#include "drafter/context_cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>

namespace arborist::drafter {
namespace {

constexpr int64_t kLayers = 2, kWidth = 3;

// What a row of `position` holds, so that a row in a wrong place is seen.
float Content(int64_t plane, int32_t position, int64_t column) {
  return static_cast<float>(position * 100 + plane * 10 + column);
}

void Write(ContextCache& cache, int32_t first, int32_t rows) {
  const ContextCache::Slot slot = *cache.Reserve(first, rows);
  for (int32_t p = slot.first_position; p < slot.first_position + slot.rows; ++p) {
    for (int64_t layer = 0; layer < kLayers; ++layer) {
      for (int64_t c = 0; c < kWidth; ++c) {
        cache.key(layer, p)[c] = Content(2 * layer, p, c);
        cache.value(layer, p)[c] = Content(2 * layer + 1, p, c);
      }
    }
  }
  cache.MarkWritten(slot);
}

void ExpectContent(const ContextCache& cache, int32_t begin, int32_t end) {
  const ContextView view = cache.View(begin, end);
  ASSERT_EQ(view.first_position, begin);
  ASSERT_EQ(view.rows, end - begin);
  for (int64_t r = 0; r < view.rows; ++r) {
    for (int64_t layer = 0; layer < kLayers; ++layer) {
      for (int64_t c = 0; c < kWidth; ++c) {
        const int32_t position = begin + static_cast<int32_t>(r);
        ASSERT_EQ(view.key(layer, kWidth)[r * kWidth + c], Content(2 * layer, position, c));
        ASSERT_EQ(view.value(layer, kWidth)[r * kWidth + c], Content(2 * layer + 1, position, c));
      }
    }
  }
}

TEST(PositionRangesTest, EqualASetUnderRandomOperations) {
  std::mt19937 random(1);
  for (int round = 0; round < 200; ++round) {
    PositionRanges ranges;
    std::set<int32_t> positions;
    for (int step = 0; step < 12; ++step) {
      const int32_t begin = random() % 40, end = begin + random() % 8;
      if (random() % 5 == 0) {
        ranges.DropBelow(begin);
        positions.erase(positions.begin(), positions.lower_bound(begin));
      } else {
        ranges.Add(begin, end);
        for (int32_t p = begin; p < end; ++p) {
          positions.insert(p);
        }
      }
      for (int32_t b = 0; b < 48; ++b) {
        bool covered = true;
        for (int32_t e = b; e < 48; ++e) {
          ASSERT_EQ(ranges.Covers(b, e), covered) << b << " " << e;
          covered = covered && positions.contains(e);
        }
      }
    }
  }
}

TEST(ContextCacheTest, RowsAreFoundByPosition) {
  ContextCache cache(kLayers, kWidth, 100, 100);
  Write(cache, 0, 7);
  Write(cache, 7, 1);
  ExpectContent(cache, 0, 8);
  ExpectContent(cache, 3, 6);
  EXPECT_TRUE(cache.Covers(0, 8));
  EXPECT_FALSE(cache.Covers(0, 9));
}

TEST(ContextCacheTest, NewestRowsMayComeFirst) {
  ContextCache cache(kLayers, kWidth, 8, 1000);
  Write(cache, 496, 4);
  EXPECT_FALSE(cache.Covers(492, 500));
  Write(cache, 492, 4);
  EXPECT_TRUE(cache.Covers(492, 500));
  ExpectContent(cache, 492, 500);
}

TEST(ContextCacheTest, RowsOlderThanTheWindowAreCutAway) {
  ContextCache cache(kLayers, kWidth, 8, 1000);
  Write(cache, 496, 4);
  EXPECT_EQ(cache.Reserve(100, 50)->rows, 0);
  const ContextCache::Slot slot = *cache.Reserve(488, 8);
  EXPECT_EQ(slot.first_position, 492);
  EXPECT_EQ(slot.rows, 4);
}

TEST(ContextCacheTest, AChunkLongerThanTheWindowKeepsItsNewestRows) {
  ContextCache cache(kLayers, kWidth, 8, 1000);
  Write(cache, 0, 300);
  EXPECT_TRUE(cache.Covers(292, 300));
  EXPECT_FALSE(cache.Covers(291, 300));
  ExpectContent(cache, 292, 300);
}

TEST(ContextCacheTest, CapacityIsBoundedByWindowAndPositions) {
  EXPECT_EQ(ContextCache(kLayers, kWidth, 8, 1000).capacity(), 16);
  EXPECT_EQ(ContextCache(kLayers, kWidth, 8, 10).capacity(), 10);
  EXPECT_EQ(ContextCache(kLayers, kWidth, 1000, 10).window(), 10);
}

TEST(ContextCacheTest, TheWindowSurvivesAnyWayOfAppending) {
  std::mt19937 random(4);
  for (int round = 0; round < 100; ++round) {
    const int32_t window = 1 + random() % 20;
    ContextCache cache(kLayers, kWidth, window, 2000);
    int32_t end = 0;
    while (end < 400) {
      const int32_t rows = 1 + random() % (random() % 4 == 0 ? 60 : 5);
      Write(cache, end, rows);
      end += rows;
      const int32_t begin = std::max(0, end - window);
      ASSERT_TRUE(cache.Covers(begin, end)) << window << " " << end;
      ExpectContent(cache, begin, end);
    }
  }
}

TEST(ContextCacheTest, CachesThatShareADevicesPlanesDoNotMix) {
  ThreadPool threads(1);
  const auto device = OpenCpuDevice(threads);
  constexpr int32_t kWindow = 8, kMost = 1000;
  const int64_t capacity = ContextCache::SharedCapacityOf(kWindow, kMost), rows = 3 * capacity;
  const DeviceMemory memory = *device->Allocate(2 * kLayers * rows * kWidth * sizeof(float), "planes");
  const ContextPlanes planes{.data = memory.As<float>(), .plane_stride = rows * kWidth, .rows = rows};
  ContextCache a(kLayers, kWidth, kWindow, kMost, planes, 0, *device),
      b(kLayers, kWidth, kWindow, kMost, planes, capacity, *device);
  for (int32_t end = 0; end < 400; end += 5) {
    Write(a, end, 5);
    Write(b, 2 * end, 10);
    ExpectContent(a, std::max(end + 5 - kWindow, 0), end + 5);
    ExpectContent(b, std::max(2 * end + 10 - kWindow, 0), 2 * end + 10);
  }
}

TEST(ContextCacheTest, AnEmptyViewIsAllowedAtTheVeryStart) {
  ContextCache cache(kLayers, kWidth, 8, 100);
  EXPECT_EQ(cache.View(0, 0).rows, 0);
}

}  // namespace
}  // namespace arborist::drafter
