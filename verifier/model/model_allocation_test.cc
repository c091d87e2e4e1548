// A forward pass allocates nothing (operator new is counted).

#include <gtest/gtest.h>

#include "kernels/testing/count_allocations.h"
#include "verifier/model/testing/golden_model.h"

namespace arborist::verifier {
namespace {

TEST(ModelAllocation, AForwardPassAllocatesNothing) {
  for (const std::string& target : testing::kGoldenTargets) {
    const testing::Golden golden = testing::ReadGolden(target);
    const auto harness =
        testing::Harness::Make({.directory = testing::GoldenDirectory(target), .threads = 2});
    ASSERT_TRUE(harness.ok()) << harness.status();
    for (const int rows : {static_cast<int>(golden.tokens.size()), 1, 9}) {
      std::vector<testing::Node> nodes;
      for (int i = 0; i < rows; ++i) {
        nodes.push_back({golden.tokens[i], i - 1});
      }
      const StepBatch& batch = (*harness)->Fill(nodes);
      const int64_t before = kernels::testing::AllocationCount();
      const auto result = (*harness)->model().Forward(ViewOf(batch), (*harness)->planes());
      const int64_t made = kernels::testing::AllocationCount() - before;
      ASSERT_TRUE(result.ok()) << result.status();
      EXPECT_EQ(made, 0) << target << ", " << rows << " rows";
    }
  }
}

TEST(ModelAllocation, TheCounterCounts) {
  const int64_t before = kernels::testing::AllocationCount();
  std::vector<float> some(1000);
  EXPECT_GT(kernels::testing::AllocationCount(), before) << some.size();
}

}  // namespace
}  // namespace arborist::verifier
