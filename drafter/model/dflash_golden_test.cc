#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <tuple>

#include "drafter/model/testing/golden_drafter.h"
#include "kernels/kernel_set.h"

namespace arborist::drafter {
namespace {

using testing::GoldenDrafter;
using testing::GoldenRun;
using testing::RelativeError;

// fp32 against fp32 in other orders of summation: both readings are within 3e-6 of each other, and every trap
// is beyond 1e-3.
constexpr double kTolerance = 1e-4;

const kernels::KernelSet& Backend(const std::string& name) {
  return name == "reference" ? kernels::ReferenceKernels() : kernels::CpuKernels();
}

class DFlashGoldenTest : public ::testing::TestWithParam<std::tuple<std::string, std::string>> {
 protected:
  GoldenDrafter golden_{std::get<0>(GetParam())};
  const kernels::KernelSet& kernels_ = Backend(std::get<1>(GetParam()));
};

TEST_P(DFlashGoldenTest, EveryLayerOfBothRoundsAgrees) {
  const GoldenRun run = RunRounds(golden_, golden_.settings, golden_.weights, kernels_);
  EXPECT_LE(RelativeError(run.layer_hidden, golden_.Read("layer_hidden")), kTolerance);
  EXPECT_LE(RelativeError(run.block_hidden, golden_.Read("block_hidden")), kTolerance);
  EXPECT_LE(RelativeError(run.log_probs, golden_.Read("log_probs")), kTolerance);
}

TEST_P(DFlashGoldenTest, MostProbableTokenAgreesAtEveryPosition) {
  const GoldenRun run = RunRounds(golden_, golden_.settings, golden_.weights, kernels_);
  const std::vector<float> expected = golden_.Read("log_probs");
  const int64_t vocabulary = golden_.settings.vocabulary;
  ASSERT_EQ(run.log_probs.size(), expected.size());
  const auto top = [&](const std::vector<float>& rows, size_t row) {
    const auto begin = rows.begin() + row * vocabulary;
    return std::max_element(begin, begin + vocabulary) - begin;
  };
  for (size_t row = 0; row < expected.size() / vocabulary; ++row) {
    EXPECT_EQ(top(run.log_probs, row), top(expected, row)) << "row " << row;
  }
}

TEST_P(DFlashGoldenTest, ContextRowsAreTheNormedFusionOfTheTaps) {
  const Projection& projection = golden_.projection;
  const int64_t rows = golden_.start[1], hidden = projection.hidden(), width = projection.fc.columns;
  ThreadPool threads(2);
  std::vector<float> context(rows * hidden);
  ASSERT_TRUE(kernels_
                  .linear({.x = {golden_.taps.data(), rows, width, width},
                           .weight = projection.fc,
                           .out = {context.data(), rows, hidden, hidden}},
                          StreamView{.threads = &threads})
                  .ok());
  ASSERT_TRUE(kernels_
                  .rms_norm({.x = {context.data(), rows, hidden, hidden},
                             .weight = {projection.norm.data(), hidden},
                             .out = {context.data(), rows, hidden, hidden},
                             .epsilon = projection.epsilon},
                            StreamView{.threads = &threads})
                  .ok());
  EXPECT_LE(RelativeError(context, golden_.context), kTolerance);
}

INSTANTIATE_TEST_SUITE_P(Goldens, DFlashGoldenTest,
                         ::testing::Combine(::testing::ValuesIn(testing::kGoldenDrafters),
                                            ::testing::Values("reference", "cpu")),
                         [](const auto& info) {
                           return std::get<0>(info.param) + "_" + std::get<1>(info.param);
                         });

TEST(RelativeErrorTest, RejectsNaNInfinityAndOtherSizes) {
  const float nan = std::numeric_limits<float>::quiet_NaN(),
              infinity = std::numeric_limits<float>::infinity();
  EXPECT_FALSE(RelativeError({1, nan}, {1, 2}) <= kTolerance);
  EXPECT_FALSE(RelativeError({1, infinity}, {1, 2}) <= kTolerance);
  EXPECT_FALSE(RelativeError({1}, {1, 2}) <= kTolerance);
  EXPECT_TRUE(RelativeError({1, 2}, {1, 2}) <= kTolerance);
}

}  // namespace
}  // namespace arborist::drafter
