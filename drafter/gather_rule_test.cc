#include "drafter/gather_rule.h"

#include <gtest/gtest.h>

#include <initializer_list>

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

class PresenceTest : public ::testing::Test {
 protected:
  static Presence::Clock::time_point At(int ms) {
    return Presence::Clock::time_point(std::chrono::hours(1) + std::chrono::milliseconds(ms));
  }
  // As after drafts at these times.
  static Presence After(std::initializer_list<int> drafts_ms) {
    Presence presence;
    for (const int ms : drafts_ms) {
      presence.Drafts(At(ms));
    }
    return presence;
  }
};

TEST_F(PresenceTest, WhoHasNotDraftedIsNotThere) { EXPECT_FALSE(Presence().IsThere(At(0))); }

TEST_F(PresenceTest, SomeRoundsAfterTheLastDraftASequenceIsGone) {
  EXPECT_TRUE(After({0}).IsThere(At(19)));
  EXPECT_FALSE(After({0}).IsThere(At(21)));
  EXPECT_TRUE(After({0, 2}).IsThere(At(21)));
  EXPECT_FALSE(After({0, 2}).IsThere(At(23)));
}

TEST_F(PresenceTest, RoundsOfALargeModelAreNoAbsence) {
  EXPECT_TRUE(After({0, 60}).IsThere(At(180)));
  EXPECT_FALSE(After({0, 60}).IsThere(At(310)));
}

TEST_F(PresenceTest, APauseIsNoRound) {
  EXPECT_TRUE(After({0, 2, 1000}).IsThere(At(1019)));
  EXPECT_FALSE(After({0, 2, 1000}).IsThere(At(1021)));
}

}  // namespace
}  // namespace arborist::drafter
