#include "kernels/vocabulary_row/vocabulary_row.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "kernels/exact_math/exact_math.h"
#include "kernels/simd/isa.h"

namespace arborist::kernels {
namespace {

std::vector<float> RandomRow(int64_t count) {
  std::mt19937 random(std::random_device{}());
  std::normal_distribution<float> normal(0, 5);
  std::vector<float> row(count);
  for (float& value : row) {
    value = std::round(normal(random) * 4) / 4;  // with ties
  }
  return row;
}

class VocabularyRowTest : public testing::TestWithParam<Isa> {
 protected:
  VocabularyRowTest() { ForceIsa(GetParam()); }
  ~VocabularyRowTest() override { ForceIsa(SupportedIsas().back()); }
};

constexpr int64_t kCounts[] = {1, 2, 15, 16, 17, 31, 32, 255, 256, 257, 300, 4096};

TEST_P(VocabularyRowTest, ThePeakIsTheFirstOfTheLargest) {
  for (int64_t count : kCounts) {
    const std::vector<float> row = RandomRow(count);
    const RowPeak peak = PeakOfRow(row.data(), count);
    EXPECT_TRUE(peak.finite);
    EXPECT_EQ(peak.index, std::max_element(row.begin(), row.end()) - row.begin());
    EXPECT_EQ(peak.max, row[peak.index]);
  }
  const float zeros[] = {-1.0f, -0.0f, 0.0f};
  EXPECT_EQ(PeakOfRow(zeros, 3).index, 1);
  EXPECT_FALSE(std::signbit(PeakOfRow(zeros, 2).max));
}

TEST_P(VocabularyRowTest, OneNonFiniteElementAnywhereIsSeen) {
  for (int64_t count : {1, 16, 17, 300}) {
    for (int64_t at = 0; at < count; ++at) {
      for (float bad :
           {std::nanf(""), std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity()}) {
        std::vector<float> row = RandomRow(count);
        row[at] = bad;
        EXPECT_FALSE(PeakOfRow(row.data(), count).finite);
      }
    }
  }
}

TEST_P(VocabularyRowTest, SumsHaveSixteenLanesJoinedAsATree) {
  for (int64_t count : kCounts) {
    const float factor = count % 2 == 0 ? 1.0f : 0.83f;
    const std::vector<float> row = RandomRow(count);
    float lanes[16] = {};
    for (int64_t i = 0; i < count; ++i) {
      lanes[i % 16] += ExactExp((row[i] - 2.5f) * factor);
    }
    for (int half : {8, 4, 2, 1}) {
      for (int lane = 0; lane < half; ++lane) {
        lanes[lane] += lanes[lane + half];
      }
    }
    EXPECT_EQ(std::bit_cast<uint32_t>(SumExpOfRow(row.data(), 2.5f, factor, count)),
              std::bit_cast<uint32_t>(lanes[0]));
  }
}

TEST_P(VocabularyRowTest, ScalingAndAddingWriteExactlyTheirElements) {
  for (int64_t count : kCounts) {
    const std::vector<float> row = RandomRow(count);
    const std::vector<float> other = RandomRow(count);
    std::vector<float> out(count + 16, -77.0f);
    ScaleRow(row.data(), 1.5f, 0.7f, count, out.data());
    for (int64_t i = 0; i < count; ++i) {
      ASSERT_EQ(out[i], (row[i] - 1.5f) / 0.7f);
    }
    AddRows(out.data(), other.data(), count, out.data());
    for (int64_t i = 0; i < count; ++i) {
      ASSERT_EQ(out[i], (row[i] - 1.5f) / 0.7f + other[i]);
    }
    EXPECT_EQ(std::count(out.begin() + count, out.end(), -77.0f), 16);
  }
}

INSTANTIATE_TEST_SUITE_P(Isas, VocabularyRowTest, testing::ValuesIn(SupportedIsas()),
                         [](const auto& info) { return Name(info.param); });

}  // namespace
}  // namespace arborist::kernels
