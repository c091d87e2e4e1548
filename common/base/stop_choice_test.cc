#include "common/base/stop_choice.h"

#include <gtest/gtest.h>

#include <vector>

namespace arborist {
namespace {

std::vector<TokenId> Ids(const std::vector<int>& ids) {
  std::vector<TokenId> tokens;
  for (const int id : ids) {
    tokens.push_back(TokenId{id});
  }
  return tokens;
}

TEST(StopChoiceTest, OfAWholeVocabularySomethingIsLeftUnlessEveryIdIsAStop) {
  EXPECT_TRUE(StopsLeaveAChoice({}, {}, 3));
  EXPECT_TRUE(StopsLeaveAChoice(Ids({2, 0}), {}, 3));
  EXPECT_FALSE(StopsLeaveAChoice(Ids({2, 0, 1}), {}, 3));
}

TEST(StopChoiceTest, AStopThatIsNamedTwiceCountsOnce) {
  EXPECT_TRUE(StopsLeaveAChoice(Ids({2, 0, 2}), {}, 3));
  EXPECT_FALSE(StopsLeaveAChoice(Ids({2, 0, 2, 1}), {}, 3));
}

TEST(StopChoiceTest, OfAllowedIdsOneMustBeNoStop) {
  EXPECT_TRUE(StopsLeaveAChoice({}, Ids({1}), 9));
  EXPECT_TRUE(StopsLeaveAChoice(Ids({7, 1}), Ids({7, 3, 1}), 9));
  EXPECT_FALSE(StopsLeaveAChoice(Ids({7, 5, 1, 7}), Ids({1, 7}), 9));
  EXPECT_FALSE(StopsLeaveAChoice(Ids({0, 1, 2}), Ids({1}), 3));
}

}  // namespace
}  // namespace arborist
