#include <gtest/gtest.h>

#include "verifier/testing/every_node_check.h"
#include "verifier/testing/exactness_checks.h"

namespace arborist::verifier {
namespace {

constexpr int kVocabulary = 64;

Subject Fake(const kernels::SamplingParams& sampling) {
  return {.make_model = nullptr, .vocabulary = kVocabulary, .sampling = sampling};
}

class ExactnessTest : public testing::TestWithParam<kernels::SamplingParams> {};

TEST_P(ExactnessTest, TextIsThatOfPlainDecodingWithAnyTreeAndAnyCompany) {
  CheckTextIsTheSame(Fake(GetParam()), 100);
}

TEST_P(ExactnessTest, KvBytesOfEveryLayerDoNotDependOnHowTheyCameToBe) { CheckKvBytes(Fake(GetParam())); }

TEST_P(ExactnessTest, SamplesOfOneRequestSayWhatEachSaysAlone) { CheckSamples(Fake(GetParam()), 60); }

TEST_P(ExactnessTest, LargeStepsGiveEverySequenceTheTextItHasAlone) { CheckLargeSteps(Fake(GetParam()), 12); }

INSTANTIATE_TEST_SUITE_P(
    Sampling, ExactnessTest,
    testing::Values(kernels::SamplingParams{.temperature = 0},
                    kernels::SamplingParams{.temperature = 0.7f, .seed = 11},
                    kernels::SamplingParams{.temperature = 1, .top_p = 0.9f, .seed = 12, .sample_index = 3}));

TEST(ExactnessTest, EveryNodeIsARootOnlyStepAfterItsAncestorsAndARowOfAnyChunk) {
  FakeModel model({.max_rows = 512, .max_logits_rows = 64});
  ThreadPool threads(1);
  CheckEveryNode(model, 2300, *OpenCpuDevice(threads), DType::kF32);
}

}  // namespace
}  // namespace arborist::verifier
