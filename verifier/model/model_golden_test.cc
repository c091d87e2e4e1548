#include <gtest/gtest.h>

#include "verifier/model/testing/golden_checks.h"

namespace arborist::verifier {
namespace {

// The goldens come from another program in fp32: both round some thousand times on the way. Its own second
// reading differs by 4e-6.
constexpr double kTolerance = 1e-4;

class ModelGolden : public ::testing::TestWithParam<std::string> {
 protected:
  const testing::HarnessOptions options_{.directory = testing::GoldenDirectory(GetParam())};
};

TEST_P(ModelGolden, LogitsHiddenStatesAndEveryArgmaxAgree) {
  testing::CheckGolden(GetParam(), options_, kTolerance);
}

TEST_P(ModelGolden, ChunksAndThreadsChangeNoBitOfLogitsTapsOrKv) {
  testing::CheckChunks(GetParam(), options_);
}

TEST_P(ModelGolden, ATreeNodeHasTheBitsOfItsPathDecodedAlone) {
  testing::CheckTreeNodes(GetParam(), options_);
}

INSTANTIATE_TEST_SUITE_P(Targets, ModelGolden, ::testing::ValuesIn(testing::kGoldenTargets),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace arborist::verifier
