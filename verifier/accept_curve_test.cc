#include "verifier/accept_curve.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

namespace arborist::verifier {
namespace {

// Scores of nodes that are accepted with p, p/2, p/3 ...
std::vector<float> Scores(int nodes, double p) {
  std::vector<float> score = {0};
  for (int i = 1; i <= nodes; ++i) {
    score.push_back(static_cast<float>(std::log(p / i)));
  }
  return score;
}

TEST(AcceptCurveTest, BeginsUnknownAndAlwaysHasTheTargetsOwnToken) {
  AcceptCurve curve;
  EXPECT_FALSE(curve.known());
  EXPECT_DOUBLE_EQ(curve.Tokens(0), 1);
  EXPECT_GE(curve.Tokens(8), curve.Tokens(4));
}

TEST(AcceptCurveTest, ScoresAreCorrectedByWhatCameTrue) {
  AcceptCurve curve;
  std::mt19937 random(1);
  const std::vector<float> score = Scores(8, 0.9);
  // Nodes come true half as often as their scores say.
  for (int round = 0; round < 3000; ++round) {
    std::vector<int32_t> path = {0};
    for (int node = 1; node <= 8; ++node) {
      if (std::uniform_real_distribution<>(0, 1)(random) < 0.5 * 0.9 / node) {
        path.push_back(node);
      }
    }
    curve.See(8, score, path);
  }
  const double sum4 = 0.45 * (1 + 1 / 2.0 + 1 / 3.0 + 1 / 4.0);
  const double sum8 = sum4 + 0.45 * (1 / 5.0 + 1 / 6.0 + 1 / 7.0 + 1 / 8.0);
  EXPECT_NEAR(curve.Tokens(4), 1 + sum4, 0.08);
  EXPECT_NEAR(curve.Tokens(8), 1 + sum8, 0.1);
}

TEST(AcceptCurveTest, NewScoresMoveItBeforeTheirTruthIsKnown) {
  AcceptCurve curve;
  const std::vector<int32_t> path = {0, 1};
  for (int round = 0; round < 500; ++round) {
    curve.See(1, std::vector<float>{0, 0}, path);
  }
  EXPECT_NEAR(curve.Tokens(1), 2, 0.01);
  for (int round = 0; round < 200; ++round) {
    curve.See(1, std::vector<float>{0, std::log(0.25f)}, round % 4 == 0 ? path : std::vector<int32_t>{0});
  }
  EXPECT_NEAR(curve.Tokens(1), 1.25, 0.05);
}

TEST(AcceptCurveTest, LargerTreesThanSeenGainLessAndLess) {
  AcceptCurve curve;
  for (int round = 0; round < 100; ++round) {
    curve.See(8, Scores(8, 0.9), std::vector<int32_t>{0, 1});
  }
  EXPECT_TRUE(curve.Visited(8));
  EXPECT_FALSE(curve.Visited(16));
  const double gain16 = curve.Tokens(16) - curve.Tokens(8);
  const double gain32 = curve.Tokens(32) - curve.Tokens(16);
  EXPECT_GT(gain16, 0);
  EXPECT_LT(gain32 / 16, gain16 / 8);
}

TEST(AcceptCurveTest, ATreeSmallerThanAskedPromisesNothingBeyond) {
  AcceptCurve curve;
  for (int round = 0; round < 100; ++round) {
    curve.See(16, Scores(4, 0.9), std::vector<int32_t>{0, 1});
  }
  EXPECT_TRUE(curve.Visited(16));
  EXPECT_NEAR(curve.Tokens(16), curve.Tokens(4), 1e-3);
}

}  // namespace
}  // namespace arborist::verifier
