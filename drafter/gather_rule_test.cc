#include "drafter/gather_rule.h"

#include <gtest/gtest.h>

namespace arborist::drafter {
namespace {

using std::chrono::microseconds;

constexpr GatherRule kRule{.patience = microseconds(150)};

TEST(GatherRuleTest, OneOrTwoSequencesNeverWait) {
  EXPECT_TRUE(kRule.Starts(1, 1, 32, microseconds(0)));
  EXPECT_TRUE(kRule.Starts(1, 2, 32, microseconds(0)));
}

TEST(GatherRuleTest, TheFirstOfManyWaitsForHalfOfThem) {
  EXPECT_FALSE(kRule.Starts(1, 32, 32, microseconds(10)));
  EXPECT_FALSE(kRule.Starts(15, 32, 32, microseconds(149)));
  EXPECT_TRUE(kRule.Starts(16, 32, 32, microseconds(10)));
  EXPECT_TRUE(kRule.Starts(2, 3, 32, microseconds(0)));
}

TEST(GatherRuleTest, ButNotForLong) { EXPECT_TRUE(kRule.Starts(1, 32, 32, microseconds(150))); }

TEST(GatherRuleTest, AFullRoundStarts) { EXPECT_TRUE(kRule.Starts(8, 64, 8, microseconds(0))); }

TEST(GatherRuleTest, WithoutPatienceEveryRoundStartsAtOnce) {
  EXPECT_TRUE(GatherRule{}.Starts(1, 32, 32, microseconds(0)));
}

}  // namespace
}  // namespace arborist::drafter
