// A round allocates nothing but the tree it returns (operator new is counted).

#include <gtest/gtest.h>

#include "drafter/testing/small_pair.h"
#include "kernels/testing/count_allocations.h"

namespace arborist::drafter {
namespace {

TEST(DFlashAllocationTest, ARoundAllocatesOnlyItsTree) {
  const testing::SmallPair pair;
  const auto context = pair.Context(40);
  ASSERT_TRUE(context->Propose({.nodes = 64}).ok());  // the first use of anything
  const auto tokens = pair.Tokens(40, 5);
  const auto features = pair.Features(39, 5);
  int64_t before = kernels::testing::AllocationCount();
  ASSERT_TRUE(context->AppendTokens(40, tokens).ok());
  ASSERT_TRUE(context->AppendFeatures(39, 5, features).ok());
  EXPECT_EQ(kernels::testing::AllocationCount() - before, 0);
  for (const float temperature : {0.0f, 1.0f}) {
    before = kernels::testing::AllocationCount();
    const absl::StatusOr<TokenTree> tree = context->Propose({.nodes = 64, .temperature = temperature});
    EXPECT_LE(kernels::testing::AllocationCount() - before, 3);  // its three vectors
    ASSERT_TRUE(tree.ok()) << tree.status();
  }
}

}  // namespace
}  // namespace arborist::drafter
