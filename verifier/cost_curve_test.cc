#include "verifier/cost_curve.h"

#include <gtest/gtest.h>

namespace arborist::verifier {
namespace {

const std::vector<int> kBounds = {1, 2, 4, 9, 17};

TEST(CostCurveTest, KnowsWhatWasMeasuredAtStart) {
  CostCurve curve(kBounds);
  curve.SetAtStart(4, 0.004);
  curve.SetAtStart(9, 0.009);
  EXPECT_DOUBLE_EQ(curve.Seconds(4, 1), 0.004);
  EXPECT_DOUBLE_EQ(curve.Seconds(5, 1), 0.009);  // padded
  EXPECT_DOUBLE_EQ(curve.Seconds(9, 3), 0.009);
}

TEST(CostCurveTest, SizesThatWereNotMeasuredFollowTheirNeighbours) {
  CostCurve curve(kBounds);
  EXPECT_GT(curve.Seconds(1, 1), 0);
  curve.SetAtStart(2, 0.002);
  curve.SetAtStart(9, 0.016);
  EXPECT_DOUBLE_EQ(curve.Seconds(1, 1), 0.002);
  EXPECT_NEAR(curve.Seconds(4, 1), 0.006, 1e-9);
  EXPECT_NEAR(curve.Seconds(17, 1), 0.016 * 17 / 9, 1e-9);
  EXPECT_NEAR(curve.Seconds(34, 1), 0.016 * 34 / 9, 1e-9);
}

TEST(CostCurveTest, FollowsWhatStepsTakeNow) {
  CostCurve curve(kBounds);
  curve.SetAtStart(1, 0.001);
  curve.SetAtStart(17, 0.002);
  for (int i = 0; i < 100; ++i) {
    curve.Observe(17, 1, 0.003);
  }
  EXPECT_NEAR(curve.Seconds(17, 1), 0.003, 1e-5);
  for (int i = 0; i < 100; ++i) {
    curve.Observe(17, 1, 0.001);
  }
  EXPECT_NEAR(curve.Seconds(17, 1), 0.001, 1e-4);
}

TEST(CostCurveTest, UnseenSizesMoveWithTheOthers) {
  CostCurve curve(kBounds);
  curve.SetAtStart(1, 0.001);
  curve.SetAtStart(17, 0.002);
  for (int i = 0; i < 300; ++i) {
    curve.Observe(1, 1, 0.0015);
  }
  EXPECT_NEAR(curve.Seconds(17, 1), 0.003, 1e-4);
}

TEST(CostCurveTest, RowsOfManySequencesAreAnotherStepThanRowsOfOne) {
  CostCurve curve(kBounds);
  curve.Observe(9, 1, 0.001);
  curve.Observe(9, 8, 0.003);
  EXPECT_DOUBLE_EQ(curve.Seconds(9, 1), 0.001);
  EXPECT_DOUBLE_EQ(curve.Seconds(9, 7), 0.003);
  EXPECT_DOUBLE_EQ(curve.Seconds(9, 4), 0.003);  // nearest
}

TEST(CostCurveTest, OneOutlierMovesLittle) {
  CostCurve curve(kBounds);
  for (int i = 0; i < 100; ++i) {
    curve.Observe(1, 1, 0.001);
  }
  curve.Observe(1, 1, 5.0);
  EXPECT_LT(curve.Seconds(1, 1), 0.0012);
}

TEST(CostCurveTest, GroupsDouble) {
  EXPECT_EQ(DoublingGroup(1), 0);
  EXPECT_EQ(DoublingGroup(2), 1);
  EXPECT_EQ(DoublingGroup(3), 2);
  EXPECT_EQ(DoublingGroup(4), 2);
  EXPECT_EQ(DoublingGroup(5), 3);
  EXPECT_EQ(DoublingGroup(32), 5);
}

}  // namespace
}  // namespace arborist::verifier
