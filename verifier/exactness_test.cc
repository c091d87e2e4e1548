#include <gtest/gtest.h>

#include <random>

#include "verifier/testing/control_cases.h"
#include "verifier/testing/control_checks.h"
#include "verifier/testing/every_node_check.h"
#include "verifier/testing/exactness_checks.h"
#include "verifier/testing/prompt_log_prob_check.h"

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

TEST_P(ExactnessTest, StrongControlsActInPlainDecodingAndInTrees) { CheckStrongControls(Fake(GetParam())); }

TEST_P(ExactnessTest, ControlsActOnTheirOwnSequence) {
  CheckControlsActOnTheirOwnSequence(Fake(GetParam()), 50);
}

TEST_P(ExactnessTest, LogProbabilitiesOfAPromptAreThoseThatItsTokensHaveAsOutput) {
  CheckPromptLogProbs(Fake(GetParam()), 100);
}

TEST_P(ExactnessTest, LargeStepsGiveEverySequenceTheTextItHasAlone) { CheckLargeSteps(Fake(GetParam()), 12); }

INSTANTIATE_TEST_SUITE_P(
    Sampling, ExactnessTest,
    testing::Values(kernels::SamplingParams{.temperature = 0},
                    kernels::SamplingParams{.temperature = 0.7f, .seed = 11},
                    kernels::SamplingParams{.temperature = 1, .top_p = 0.9f, .seed = 12, .sample_index = 3}));

class ControlledExactnessTest : public testing::TestWithParam<ControlCase> {};

TEST_P(ControlledExactnessTest, TextIsThatOfPlainDecodingWithAnyTreeAndAnyCompany) {
  for (const float temperature : {0.0f, 1.0f}) {
    Subject subject = Fake({.temperature = temperature, .seed = 15});
    subject.controls = GetParam().controls;
    subject.stop_ids = GetParam().stop_ids;
    CheckTextIsTheSame(subject, 70);
  }
}

TEST_P(ControlledExactnessTest, NothingActsOnLogProbabilitiesOfThePrompt) {
  Subject subject = Fake({.temperature = 1, .seed = 16});
  subject.controls = GetParam().controls;
  CheckPromptLogProbs(subject, 60);
}

INSTANTIATE_TEST_SUITE_P(Controls, ControlledExactnessTest,
                         testing::ValuesIn(ControlCases(kVocabulary, std::random_device{}())),
                         [](const auto& info) { return info.param.name; });

TEST(ExactnessTest, EveryNodeIsARootOnlyStepAfterItsAncestorsAndARowOfAnyChunk) {
  FakeModel model({.max_rows = 512, .max_logits_rows = 64});
  ThreadPool threads(1);
  CheckEveryNode(model, 2300, *OpenCpuDevice(threads), DType::kF32);
}

}  // namespace
}  // namespace arborist::verifier
