// The exactness checks on real decoders: the random checkpoints of tests/golden/target.
#include <gtest/gtest.h>

#include <string>

#include "verifier/testing/constraint_cases.h"
#include "verifier/testing/constraint_checks.h"
#include "verifier/testing/every_node_check.h"
#include "verifier/testing/exactness_checks.h"
#include "verifier/testing/prompt_log_prob_check.h"

namespace arborist::verifier {
namespace {

class GoldenExactnessTest : public testing::TestWithParam<std::string> {
 protected:
  static constexpr int kRows = 600;

  Subject MakeSubject(const kernels::SamplingParams& sampling) {
    const std::string name = GetParam();
    const auto make = [name](const ModelOptions& options, Device& device) {
      return LoadGolden(name, options, device);
    };
    return {.make_model = make,
            .vocabulary = static_cast<int>(Load(1100)->config().vocab_size),
            .sampling = sampling};
  }

  std::unique_ptr<Model> Load(int max_context) {
    ModelOptions options;
    options.max_rows = kRows;
    options.max_logits_rows = 64;
    options.max_context = max_context;
    return LoadGolden(GetParam(), options, *device_);
  }

  ThreadPool pool_{2};
  std::unique_ptr<Device> device_ = OpenCpuDevice(pool_);
};

TEST_P(GoldenExactnessTest, GreedyTextIsThatOfPlainDecodingWithAnyTreeAndAnyCompany) {
  CheckTextIsTheSame(MakeSubject({.temperature = 0}), 48);
}

TEST_P(GoldenExactnessTest, SampledTextIsThatOfPlainDecodingWithAnyTreeAndAnyCompany) {
  CheckTextIsTheSame(MakeSubject({.temperature = 1, .top_p = 0.9f, .seed = 4}), 48);
}

TEST_P(GoldenExactnessTest, KvBytesOfEveryLayerDoNotDependOnHowTheyCameToBe) {
  CheckKvBytes(MakeSubject({.temperature = 0.7f, .seed = 9}));
}

TEST_P(GoldenExactnessTest, SamplesOfOneRequestSayWhatEachSaysAlone) {
  CheckSamples(MakeSubject({.temperature = 1, .seed = 31}), 24);
}

TEST_P(GoldenExactnessTest, LogProbabilitiesOfAPromptAreThoseThatItsTokensHaveAsOutput) {
  CheckPromptLogProbs(MakeSubject({.temperature = 1, .seed = 5}), 70);
}

TEST_P(GoldenExactnessTest, TextOfAFormIsThatOfPlainDecodingWithAnyTreeAndAnyCompanyAndHasTheForm) {
  const Subject subject = MakeSubject({.temperature = 0.9f, .seed = 45});
  for (const ConstraintCase& of : ConstraintCases()) {
    if (of.name == "JsonThatEndsByItself" || of.name == "WithEverything") {
      CheckConstrainedText(subject, of, 48);
      CheckEveryTextHasTheForm(subject, of, 4, 48);
    }
  }
}

TEST_P(GoldenExactnessTest, EveryNodeIsARootOnlyStepAfterItsAncestorsAndARowOfAnyChunk) {
  // Two of them past the second split; blocks end in all.
  const bool past_splits = GetParam() == "kimi_step_ramp" || GetParam() == "v2_lite";
  const int longest = past_splits ? 2300 : 300;
  CheckEveryNode(*Load(longest + 100), longest, *device_, DType::kF32);
}

TEST_P(GoldenExactnessTest, TheSelfTestPasses) {
  TestVerifierOptions options;
  options.make_model = MakeSubject({.temperature = 0}).make_model;
  options.verifier.max_rows = kRows;
  options.verifier.run_self_test = true;
  TestVerifier verifier(std::move(options));  // ends the process if it fails
  EXPECT_EQ(verifier->free_pages(), verifier->total_pages());
}

INSTANTIATE_TEST_SUITE_P(Checkpoints, GoldenExactnessTest,
                         testing::Values("kimi_small_latents", "kimi_step_ramp", "kimi_wrapped", "tied",
                                         "v2_groups", "v2_lite", "v3_groups"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace arborist::verifier
