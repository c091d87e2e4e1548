// The exactness checks on real decoders: the random checkpoints of tests/golden/target.
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "common/base/check.h"
#include "verifier/testing/exactness_checks.h"

namespace arborist::verifier {
namespace {

std::unique_ptr<Model> LoadGolden(const std::string& name, ModelOptions options, StreamView stream) {
  const char* source = std::getenv("ARBORIST_SOURCE_DIR");
  Check(source != nullptr, "ctest sets ARBORIST_SOURCE_DIR");
  options.directory = std::string(source) + "/tests/golden/target/" + name;
  auto model = Model::Load(options, kernels::CpuKernels(), stream);
  Check(model.ok(), model.status().ToString());
  return *std::move(model);
}

class GoldenExactnessTest : public testing::TestWithParam<std::string> {
 protected:
  static constexpr int kRows = 600;

  Subject MakeSubject(const kernels::SamplingParams& sampling) {
    const std::string name = GetParam();
    const auto make = [name](const ModelOptions& options, StreamView stream) {
      return LoadGolden(name, options, stream);
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
    return LoadGolden(GetParam(), options, {.threads = &pool_});
  }

  ThreadPool pool_{2};
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

TEST_P(GoldenExactnessTest, ANodeIsARootOnlyStepAfterItsAncestors) {
  const auto model = Load(1300);
  CheckNodeEqualsRootOnlyStep(*model, 1200);
}

INSTANTIATE_TEST_SUITE_P(Checkpoints, GoldenExactnessTest,
                         testing::Values("kimi_small_latents", "kimi_step_ramp", "kimi_wrapped", "tied",
                                         "v2_groups", "v2_lite", "v3_groups"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace arborist::verifier
