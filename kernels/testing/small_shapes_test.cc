#include "kernels/testing/small_shapes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

namespace arborist::kernels::testing {
namespace {

using ::testing::ElementsAre;

TEST(SmallShapes, UnderTheVariableAFewValuesAreLeftWithTheFirstAndTheLast) {
  ASSERT_EQ(setenv("ARBORIST_SMALL_SHAPES", "1", 1), 0);  // before anybody asks
  EXPECT_TRUE(SmallShapes());
  EXPECT_EQ(Small(600, 97), 97);
  EXPECT_THAT(Thinned({0, 1, 2, 7, 65}, 3), ElementsAre(0, 2, 65));
  EXPECT_THAT(Thinned({0, 1, 2, 7, 65}, 2), ElementsAre(0, 65));
  EXPECT_THAT(Thinned({4, 5}, 2), ElementsAre(4, 5));
  EXPECT_THAT(Thinned({4, 5}, 9), ElementsAre(4, 5));
  constexpr double kArray[] = {0.5, 1, 2, 3};
  EXPECT_THAT(Thinned(kArray, 3), ElementsAre(0.5, 1, 3));
}

}  // namespace
}  // namespace arborist::kernels::testing
