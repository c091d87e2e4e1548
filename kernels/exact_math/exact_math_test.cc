#include "kernels/exact_math/exact_math.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/simd/isa.h"

namespace arborist::kernels {
namespace {

// Distance in units of the last place of the true value.
double UlpError(float got, double truth) {
  const float rounded = static_cast<float>(truth);
  const double ulp =
      std::nextafter(std::fabs(rounded), std::numeric_limits<float>::infinity()) - std::fabs(rounded);
  return std::fabs(static_cast<double>(got) - truth) / ulp;
}

TEST(ExactMathTest, ExpIsWithinThreeUnitsOfTheLastPlace) {
  double worst = 0;
  for (double x = -87.2; x < 88.6; x += 0.00137) {
    const auto input = static_cast<float>(x);
    worst = std::max(worst, UlpError(ExactExp(input), std::exp(static_cast<double>(input))));
  }
  EXPECT_LE(worst, 3.0);  // the polynomial and its Horner steps; measured below 1.5
  EXPECT_EQ(ExactExp(0.0f), 1.0f);
}

TEST(ExactMathTest, ExpKeepsItsPromisesOutsideTheRange) {
  const float infinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(ExactExp(-87.4f), 0.0f);
  EXPECT_EQ(ExactExp(-infinity), 0.0f);
  EXPECT_EQ(ExactExp(89.0f), infinity);
  EXPECT_EQ(ExactExp(infinity), infinity);
  EXPECT_TRUE(std::isnan(ExactExp(std::nanf(""))));
}

TEST(ExactMathTest, LogIsWithinThreeUnitsOfTheLastPlaceAwayFromOne) {
  std::mt19937_64 random(1);
  double worst = 0;
  for (int i = 0; i < 400000; ++i) {
    const auto bits = static_cast<uint32_t>(0x00800000u + random() % (0x7f800000u - 0x00800000u));
    const float x = std::bit_cast<float>(bits);
    worst = std::max(worst, UlpError(ExactLog(x), std::log(static_cast<double>(x))));
  }
  EXPECT_LE(worst, 3.0);
  EXPECT_EQ(ExactLog(1.0f), 0.0f);
}

TEST(ExactMathTest, LogKeepsItsPromisesOutsideTheRange) {
  const float infinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(ExactLog(infinity), infinity);
  EXPECT_EQ(ExactLog(0.0f), -infinity);
  EXPECT_TRUE(std::isnan(ExactLog(-1.0f)));
  EXPECT_TRUE(std::isnan(ExactLog(std::nanf(""))));
}

TEST(ExactMathTest, PhiloxGivesTheKnownAnswersOfItsAuthors) {
  using Words = std::array<uint32_t, 4>;
  EXPECT_EQ(Philox4x32({0, 0, 0, 0}, {0, 0}), (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  constexpr uint32_t kOnes = 0xffffffffu;
  EXPECT_EQ(Philox4x32({kOnes, kOnes, kOnes, kOnes}, {kOnes, kOnes}),
            (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(Philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(ExactMathTest, RowsAreTheSameBitsOnEveryInstructionSet) {
  std::mt19937_64 random(std::random_device{}());
  const uint64_t seed = random();
  const auto position = static_cast<int32_t>(random() % 100000);
  const Isa before = ActiveIsa();
  std::vector<float> x(1003);
  std::uniform_real_distribution<float> uniform(-100, 100);
  std::generate(x.begin(), x.end(), [&] { return uniform(random); });
  x[7] = std::numeric_limits<float>::infinity();
  x[8] = -x[7];
  for (const Isa isa : SupportedIsas()) {
    ForceIsa(isa);
    for (const int64_t count : {1, 3, 63, 64, 65, 1003}) {
      std::vector<float> noise(count, std::nanf(""));
      GumbelRow(seed, 3, position, 8, count, noise.data());
      std::vector<float> exps(count, std::nanf(""));
      ExpRow(x.data(), 0.5f, count, exps.data());
      for (int64_t i = 0; i < count; ++i) {
        ASSERT_EQ(noise[i], Gumbel(seed, 3, position, static_cast<int32_t>(8 + i)))
            << Name(isa) << " id " << 8 + i;
        ASSERT_EQ(exps[i], ExactExp(x[i] - 0.5f)) << Name(isa) << " x " << x[i];
      }
    }
  }
  ForceIsa(before);
}

TEST(ExactMathTest, ExpRowLetsNaNThroughOnEveryInstructionSet) {
  const Isa before = ActiveIsa();
  for (const Isa isa : SupportedIsas()) {
    ForceIsa(isa);
    std::vector<float> x(32, std::nanf(""));
    ExpRow(x.data(), 0.0f, 32, x.data());
    for (const float y : x) {
      EXPECT_TRUE(std::isnan(y)) << Name(isa);
    }
  }
  ForceIsa(before);
}

TEST(ExactMathTest, GumbelNoiseHasItsMeanVarianceAndDistribution) {
  constexpr int64_t kCount = 1 << 20;
  std::vector<float> noise(kCount);
  GumbelRow(99, 0, 5, 0, kCount, noise.data());
  double sum = 0;
  double squares = 0;
  for (const float g : noise) {
    ASSERT_TRUE(g > -3.2f && g < kGumbelMax) << g;
    sum += g;
    squares += static_cast<double>(g) * g;
  }
  const double mean = sum / kCount;
  const double deviation = 1.2825 / std::sqrt(static_cast<double>(kCount));
  EXPECT_NEAR(mean, 0.57721566, 5 * deviation);
  EXPECT_NEAR(squares / kCount - mean * mean, 1.644934, 0.02);
  std::sort(noise.begin(), noise.end());
  double distance = 0;  // Kolmogorov-Smirnov against exp(-exp(-g))
  for (int64_t i = 0; i < kCount; ++i) {
    distance = std::max(distance,
                        std::fabs(std::exp(-std::exp(-static_cast<double>(noise[i]))) - (i + 0.5) / kCount));
  }
  EXPECT_LT(distance * std::sqrt(static_cast<double>(kCount)), 1.95);  // 0.1 % level
}

TEST(ExactMathTest, GumbelNoiseIsFiniteForExtremeWords) {
  // The largest noise comes from the smallest word; over 2^26 draws none leaves the promised interval.
  float smallest = 0;
  float largest = 0;
  std::vector<float> noise(1 << 16);
  for (int position = 0; position < 256; ++position) {
    GumbelRow(1, 0, position, 0, static_cast<int64_t>(noise.size()), noise.data());
    smallest = std::min(smallest, *std::min_element(noise.begin(), noise.end()));
    largest = std::max(largest, *std::max_element(noise.begin(), noise.end()));
  }
  EXPECT_GT(smallest, -3.2f);
  EXPECT_LT(largest, kGumbelMax);
  EXPECT_GT(largest, 14.0f);
}

}  // namespace
}  // namespace arborist::kernels
