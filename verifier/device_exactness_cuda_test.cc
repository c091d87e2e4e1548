// The exactness checks on a GPU: real decoders, both kinds of K/V. Skipped without one.
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "kernels/testing/small_shapes.h"
#include "verifier/testing/constraint_cases.h"
#include "verifier/testing/constraint_checks.h"
#include "verifier/testing/control_cases.h"
#include "verifier/testing/control_checks.h"
#include "verifier/testing/drive.h"
#include "verifier/testing/every_node_check.h"
#include "verifier/testing/exactness_checks.h"
#include "verifier/testing/prompt_log_prob_check.h"

namespace arborist::verifier {
namespace {

using kernels::testing::Small;

std::unique_ptr<Device> OpenGpu(ThreadPool&) { return *OpenCudaDevice({}); }

class GpuTest : public testing::Test {
 protected:
  void SetUp() override {
    auto device = OpenCudaDevice({});
    if (!device.ok()) {
      GTEST_SKIP() << "skipped: " << device.status().message();
    }
    device_ = *std::move(device);
  }

  std::unique_ptr<Device> device_;
};

class DeviceExactnessTest : public GpuTest, public testing::WithParamInterface<std::string> {
 protected:
  const int rows_ = Small(600, 65);

  Subject MakeSubject(const kernels::SamplingParams& sampling, DType kv_type) {
    const std::string name = GetParam();
    Subject subject;
    subject.make_model = [name](const ModelOptions& options, Device& device) {
      return LoadGolden(name, options, device);
    };
    subject.vocabulary = static_cast<int>(Load(1100)->config().vocab_size);
    subject.sampling = sampling;
    subject.open_device = OpenGpu;
    subject.kv_type = kv_type;
    return subject;
  }

  std::unique_ptr<Model> Load(int max_context) {
    ModelOptions options;
    options.max_rows = rows_;
    options.max_logits_rows = 64;
    options.max_context = max_context;
    return LoadGolden(GetParam(), options, *device_);
  }
};

TEST_P(DeviceExactnessTest, TheSelfTestPasses) {
  for (const DType kv_type : {DType::kF32, DType::kBF16}) {
    TestVerifierOptions options = OptionsOf(MakeSubject({.temperature = 0}, kv_type));
    options.verifier.max_rows = rows_;
    options.verifier.max_logits_rows = Small(130, 9);
    options.verifier.max_tree_nodes = Small(64, 8);
    options.verifier.max_context = Small(1000, 300);
    options.verifier.max_sequences = Small(8, 2);
    options.verifier.run_self_test = true;
    TestVerifier verifier(std::move(options));  // ends the process if it fails
    EXPECT_EQ(verifier->free_pages(), verifier->total_pages());
  }
}

TEST_P(DeviceExactnessTest, GreedyTextIsThatOfPlainDecodingWithAnyTreeAndAnyCompany) {
  CheckTextIsTheSame(MakeSubject({.temperature = 0}, DType::kBF16), Small(48, 10));
}

TEST_P(DeviceExactnessTest, SampledTextIsThatOfPlainDecodingWithAnyTreeAndAnyCompany) {
  CheckTextIsTheSame(MakeSubject({.temperature = 1, .top_p = 0.9f, .seed = 4}, DType::kBF16), Small(48, 10));
}

TEST_P(DeviceExactnessTest, KvBytesOfEveryLayerDoNotDependOnHowTheyCameToBe) {
  for (const DType kv_type : Small(std::vector{DType::kF32, DType::kBF16}, std::vector{DType::kBF16})) {
    CheckKvBytes(MakeSubject({.temperature = 0.7f, .seed = 9}, kv_type));
  }
}

TEST_P(DeviceExactnessTest, EveryNodeIsARootOnlyStepAfterItsAncestorsAndARowOfAnyChunk) {
  // Two of them past 33 blocks, where splits grow; blocks end in all.
  const bool past_splits = GetParam() == "kimi_step_ramp" || GetParam() == "v2_lite";
  const auto model = Load(2400);
  CheckEveryNode(*model, Small(150, 100), *device_, DType::kF32);
  CheckEveryNode(*model, past_splits ? Small(2300, 300) : Small(300, 130), *device_, DType::kBF16);
}

TEST_P(DeviceExactnessTest, SamplesOfOneRequestSayWhatEachSaysAlone) {
  CheckSamples(MakeSubject({.temperature = 1, .seed = 31}, DType::kBF16), Small(24, 6));
}

TEST_P(DeviceExactnessTest, StrongControlsActInPlainDecodingAndInTrees) {
  CheckStrongControls(MakeSubject({.temperature = 1, .seed = 41}, DType::kBF16));
}

TEST_P(DeviceExactnessTest, ControlsActOnTheirOwnSequence) {
  CheckControlsActOnTheirOwnSequence(MakeSubject({.temperature = 1, .seed = 42}, DType::kBF16), Small(30, 8));
}

TEST_P(DeviceExactnessTest, ControlledTextIsThatOfPlainDecodingWithAnyTreeAndAnyCompany) {
  Subject subject = MakeSubject({.temperature = 0.8f, .seed = 43}, DType::kBF16);
  const ControlCase everything = ControlCases(subject.vocabulary, std::random_device{}()).back();
  subject.controls = everything.controls;
  CheckTextIsTheSame(subject, Small(48, 10));
}

TEST_P(DeviceExactnessTest, LogProbabilitiesOfAPromptAreThoseThatItsTokensHaveAsOutput) {
  CheckPromptLogProbs(MakeSubject({.temperature = 1, .seed = 5}, DType::kBF16), Small(70, 10));
}

TEST_P(DeviceExactnessTest, LargeStepsGiveEverySequenceTheTextItHasAlone) {
  CheckLargeSteps(MakeSubject({.temperature = 1, .seed = 21}, DType::kBF16), Small(20, 4));
}

TEST_P(DeviceExactnessTest, TextOfAFormIsThatOfPlainDecodingWithAnyTreeAndAnyCompanyAndHasTheForm) {
  const Subject subject = MakeSubject({.temperature = 0.9f, .seed = 45}, DType::kBF16);
  for (const ConstraintCase& of : ConstraintCases()) {
    if (of.name == "JsonThatEndsByItself" || of.name == "WithEverything") {
      CheckConstrainedText(subject, of, Small(48, 10));
      CheckEveryTextHasTheForm(subject, of, Small(4, 1), Small(48, 10));
    }
  }
}

// The golden models are too small for the tensor cores, and the pair's vocabulary has many masks' words and
// several chunks of sums.
class DevicePairTest : public GpuTest {
 protected:
  Subject Pair(const kernels::SamplingParams& sampling) {
    ModelOptions model;
    model.max_rows = 2;
    model.max_logits_rows = 1;
    model.max_context = 16;
    return {.make_model = LoadShippedTarget,
            .vocabulary = static_cast<int>(LoadShippedTarget(model, *device_)->config().vocab_size),
            .sampling = sampling,
            .open_device = OpenGpu,
            .kv_type = DType::kBF16};
  }
};

TEST_F(DevicePairTest, LargeStepsGiveEverySequenceTheTextItHasAlone) {
  for (const float temperature : Small(std::vector{0.0f, 1.0f}, std::vector{1.0f})) {
    CheckLargeSteps(Pair({.temperature = temperature, .seed = 22}), Small(20, 4));
  }
}

TEST_F(DevicePairTest, EveryNodeIsARootOnlyStepAfterItsAncestorsAndARowOfAnyChunk) {
  ModelOptions options;
  options.max_rows = Small(600, 97);
  options.max_logits_rows = 64;
  options.max_context = 2048;
  const auto model = LoadShippedTarget(options, *device_);
  CheckEveryNode(*model, Small(150, 65), *device_, DType::kF32);
  CheckEveryNode(*model, Small(2000, 130), *device_, DType::kBF16);
}

class DevicePairControlTest : public DevicePairTest, public testing::WithParamInterface<std::string> {};

TEST_P(DevicePairControlTest, TextIsThatOfPlainDecodingWithAnyTreeAndAnyCompany) {
  std::random_device random;
  Subject subject = Pair({.temperature = static_cast<float>(random() % 2), .seed = 44});
  for (const ControlCase& of : ControlCases(subject.vocabulary, random())) {
    if (of.name == GetParam()) {
      subject.controls = of.controls;
      subject.stop_ids = of.stop_ids;
      CheckTextIsTheSame(subject, Small(40, 8));
    }
  }
}

std::vector<std::string> ControlNames() {
  std::vector<std::string> names;
  for (const ControlCase& of : ControlCases(64, 1)) {
    names.push_back(of.name);
  }
  return names;
}

INSTANTIATE_TEST_SUITE_P(Controls, DevicePairControlTest,
                         testing::ValuesIn(Small(ControlNames(), {"Everything"})),
                         [](const auto& info) { return info.param; });

class DevicePairFormTest : public DevicePairTest, public testing::WithParamInterface<ConstraintCase> {};

TEST_P(DevicePairFormTest, TextIsThatOfPlainDecodingWithAnyTreeAndAnyCompany) {
  const auto temperature = static_cast<float>(std::random_device{}() % 2);
  CheckConstrainedText(Pair({.temperature = temperature, .seed = 46}), GetParam(), Small(48, 8));
}

TEST_P(DevicePairFormTest, EveryTextHasTheFormBesideAnySequenceAndEndsWithIt) {
  CheckEveryTextHasTheForm(Pair({}), GetParam(), Small(6, 1), Small(48, 8));
}

INSTANTIATE_TEST_SUITE_P(Forms, DevicePairFormTest,
                         testing::ValuesIn(Small(ConstraintCases(), {ConstraintCases().back()})),
                         [](const auto& info) { return info.param.name; });

// Little enough for the sanitizers: plain steps, then controlled ones with everything on a sequence.
using DeviceStepTest = GpuTest;

TEST_F(DeviceStepTest, SmallStepsOfChunksRootsAndTreesAgreePlainAndControlled) {
  constexpr int kVocabulary = 256, kNodes = 7, kTokens = 8;
  TestVerifierOptions options;
  options.open_device = OpenGpu;
  options.make_model = [](const ModelOptions& model, Device& device) {
    return LoadGolden("tied", model, device);
  };
  options.projection = true;
  options.verifier.kv_type = DType::kBF16;
  options.verifier.max_context = 100;
  options.verifier.max_tree_nodes = kNodes;
  options.verifier.max_sequences = 1;
  options.verifier.max_rows = kNodes + 2;
  options.verifier.max_logits_rows = kNodes + 2;
  TestVerifier verifier(options);
  OpenArgs args = MakeOpen("request", RandomTokens(20, 64, 3), kTokens, kNodes);
  args.projection_hash = kTestProjectionHash;
  for (const bool controlled : {false, true}) {
    if (controlled) {
      Constrain(ConstraintCases().back(), args, kVocabulary);
    }
    const Decoded plain = DecodePlain(*verifier, args);
    ASSERT_EQ(plain.tokens.size(), static_cast<size_t>(kTokens)) << plain.closed;
    EXPECT_EQ(plain.top_log_probs.empty(), !controlled);
    std::vector<TokenId> text = args.prompt;
    text.insert(text.end(), plain.tokens.begin(), plain.tokens.end());
    const Decoded trees = DecodeTrees(*verifier, args, ReplayDrafter(text, kVocabulary, kNodes, 5));
    EXPECT_EQ(trees.tokens, plain.tokens) << trees.closed;
    EXPECT_EQ(trees.log_probs, plain.log_probs);
    EXPECT_EQ(trees.top_log_probs, plain.top_log_probs);
    EXPECT_GT(trees.accepted_drafts, 0);
    for (const auto& [position, row] : trees.features) {
      if (const auto other = plain.features.find(position); other != plain.features.end()) {
        EXPECT_EQ(row, other->second) << "features of position " << position;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Checkpoints, DeviceExactnessTest,
    testing::ValuesIn(Small<std::vector<std::string>>({"kimi_small_latents", "kimi_step_ramp", "kimi_wrapped",
                                                       "tied", "v2_groups", "v2_lite", "v3_groups"},
                                                      {"v3_groups"})),
    [](const auto& info) { return info.param; });

}  // namespace
}  // namespace arborist::verifier
