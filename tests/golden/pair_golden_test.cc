// The shipped pair against what plain torch computed from the same weights: target features, their fusion,
// the drafter's log-probabilities and its trees, each from the one before, in float32.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "common/base/check.h"
#include "common/projection/projection.h"
#include "common/weights/safetensors.h"
#include "drafter/model/dflash_model.h"
#include "drafter/model/testing/golden_drafter.h"
#include "kernels/kernel_set.h"
#include "verifier/model/testing/golden_model.h"

namespace arborist::tests {
namespace {

using drafter::testing::RelativeError;

// fp32 sums in other orders, through seven target layers and four of the drafter: measured below 1e-6.
constexpr double kTolerance = 1e-4;

std::string Root() {
  const char* directory = std::getenv("ARBORIST_SOURCE_DIR");
  return directory != nullptr ? directory : ".";
}

template <typename T>
T Must(absl::StatusOr<T> value) {
  Check(value.ok(), std::string(value.status().message()));
  return *std::move(value);
}

void Must(const absl::Status& status) { Check(status.ok(), std::string(status.message())); }

class PairGoldenTest : public ::testing::TestWithParam<int> {
 protected:
  PairGoldenTest()
      : golden_(Must(SafetensorsFile::Open(Root() + "/tests/golden/pair/golden.safetensors"))),
        projection_(Must(LoadProjection(pair_ + "/drafter"))),
        target_(Must(Checkpoint::Open(pair_ + "/target"))),
        settings_(Must(drafter::ReadDFlashConfig(pair_ + "/drafter"))) {
    Must(drafter::LoadDrafterTensors(projection_.checkpoint, settings_, weights_));
    Must(drafter::LoadTargetTensors(target_, settings_, weights_));
    for (const int32_t id : Ints("ids")) {
      prompt_.push_back(TokenId{id});
    }
    bonus_ = TokenId{Ints("greedy_64")[0]};
  }

  TensorView Tensor(const std::string& name) const {
    return Must(golden_.Find("prompt" + std::to_string(GetParam()) + "." + name));
  }
  std::vector<int32_t> Ints(const std::string& name) const {
    const TensorView tensor = Tensor(name);
    return {tensor.As<int32_t>(), tensor.As<int32_t>() + tensor.elements()};
  }
  std::vector<float> Floats(const std::string& name) const {
    const TensorView tensor = Tensor(name);
    return {tensor.As<float>(), tensor.As<float>() + tensor.elements()};
  }

  // The projection's taps of every prompt position, [prompt, taps * hidden].
  std::vector<float> Taps() const {
    const auto harness =
        Must(verifier::testing::Harness::Make({.directory = pair_ + "/target", .threads = 2}));
    const auto output = Must(harness->Run(prompt_, 256));  // every layer is tapped
    const int64_t rows = static_cast<int64_t>(prompt_.size()), hidden = projection_.hidden();
    const int64_t row_width = static_cast<int64_t>(output.taps.size()) / rows;
    std::vector<float> taps;
    for (int64_t row = 0; row < rows; ++row) {
      for (const int32_t layer : projection_.taps) {
        const float* begin = output.taps.data() + row * row_width + layer * hidden;
        taps.insert(taps.end(), begin, begin + hidden);
      }
    }
    return taps;
  }

  // hidden_norm(fc(taps)), not rounded to bf16 as on the wire.
  std::vector<float> Features(const std::vector<float>& taps) {
    const int64_t rows = static_cast<int64_t>(prompt_.size()), hidden = projection_.hidden();
    const int64_t width = projection_.fc.columns;
    std::vector<float> features(rows * hidden);
    const View2<float> out{features.data(), rows, hidden, hidden};
    Must(kernels_.linear({.x = {taps.data(), rows, width, width}, .weight = projection_.fc, .out = out},
                         stream_));
    Must(kernels_.rms_norm({.x = {features.data(), rows, hidden, hidden},
                            .weight = {projection_.norm.data(), hidden},
                            .out = out,
                            .epsilon = projection_.epsilon},
                           stream_));
    return features;
  }

  // Logits of the seven positions after the first continuation token.
  View2<const float> Draft(const std::vector<float>& features) {
    const int32_t rows = static_cast<int32_t>(prompt_.size());
    model_ = Must(drafter::DFlashModel::Create(settings_, weights_, {}, kernels_, *device_));
    drafter::ContextCache cache(static_cast<int64_t>(settings_.layers.size()), settings_.kv_width(), rows,
                                rows);
    Must(model_->AppendContext(0, {features.data(), rows, settings_.hidden, settings_.hidden}, cache));
    return Must(model_->DraftBlock(
        {.bonus = bonus_, .position = rows, .context = cache.View(0, rows), .depths = settings_.block - 1}));
  }

  const std::string pair_ = Root() + "/deploy/models/arborist-tiny";
  const kernels::KernelSet& kernels_ = kernels::CpuKernels();
  ThreadPool threads_{2};
  const StreamView stream_{.threads = &threads_};
  const std::unique_ptr<Device> device_ = OpenCpuDevice(threads_);
  SafetensorsFile golden_;
  Projection projection_;
  Checkpoint target_;
  drafter::DFlashSettings settings_;
  drafter::DFlashWeights weights_;
  std::unique_ptr<drafter::DFlashModel> model_;
  std::vector<TokenId> prompt_;
  TokenId bonus_{};
};

TEST_P(PairGoldenTest, TapsAndFeaturesAgree) {
  const std::vector<float> taps = Taps(), last_taps = Floats("target_features_last");
  EXPECT_LE(RelativeError({taps.end() - last_taps.size(), taps.end()}, last_taps), kTolerance);
  const std::vector<float> features = Features(taps), last = Floats("fused_features_last16");
  EXPECT_LE(RelativeError({features.end() - last.size(), features.end()}, last), kTolerance);
}

TEST_P(PairGoldenTest, LogProbabilitiesAgree) {
  const View2<const float> logits = Draft(Features(Taps()));
  std::vector<float> log_probs;
  for (int64_t depth = 0; depth < logits.rows; ++depth) {
    double sum = 0;
    for (int64_t v = 0; v < logits.columns; ++v) {
      sum += std::exp(static_cast<double>(logits.row(depth)[v]));
    }
    for (int64_t v = 0; v < logits.columns; ++v) {
      log_probs.push_back(static_cast<float>(logits.row(depth)[v] - std::log(sum)));
    }
  }
  EXPECT_LE(RelativeError(log_probs, Floats("draft_logprobs")), kTolerance);
}

TEST_P(PairGoldenTest, TreesOfSixteenAndSixtyFourNodesAreTheSame) {
  const View2<const float> logits = Draft(Features(Taps()));
  const int64_t depths = logits.rows;
  std::vector<std::byte> scratch(kernels::TopKLogProbScratchBytes(depths, logits.columns));
  for (const int budget : {16, 64}) {
    std::vector<TokenId> candidate(depths * budget), token(budget + 1);
    std::vector<float> log_prob(depths * budget), score(budget + 1);
    std::vector<int32_t> parent(budget + 1);
    int32_t nodes = 0;
    const kernels::TopKParams wanted{.depths = static_cast<int32_t>(depths), .k = budget};
    Must(kernels_.top_k_log_prob({.logits = logits,
                                  .params = {&wanted, 1},
                                  .token = {candidate.data(), depths, budget, budget},
                                  .log_prob = {log_prob.data(), depths, budget, budget},
                                  .scratch = {scratch.data(), static_cast<int64_t>(scratch.size())}},
                                 stream_));
    const kernels::TreeBuildParams shape{
        .root = bonus_, .depths = static_cast<int32_t>(depths), .k = budget, .budget = budget};
    Must(kernels_.tree_build({.params = {&shape, 1},
                              .token = {candidate.data(), depths, budget, budget},
                              .log_prob = {log_prob.data(), depths, budget, budget},
                              .out_token = {token.data(), 1, budget + 1, budget + 1},
                              .out_parent = {parent.data(), 1, budget + 1, budget + 1},
                              .out_score = {score.data(), 1, budget + 1, budget + 1},
                              .out_nodes = {&nodes, 1},
                              .error = {}},
                             stream_));
    ASSERT_EQ(nodes, budget + 1);
    const std::string name = "tree" + std::to_string(budget) + ".";
    const std::vector<int32_t> golden_token = Ints(name + "token"), golden_parent = Ints(name + "parent");
    for (int i = 0; i < budget; ++i) {  // the golden list leaves the root out
      EXPECT_EQ(Raw(token[i + 1]), golden_token[i]) << budget << " nodes, node " << i + 1;
      EXPECT_EQ(parent[i + 1], golden_parent[i] + 1) << budget << " nodes, node " << i + 1;
    }
    EXPECT_LE(RelativeError({score.begin() + 1, score.end()}, Floats(name + "score")), kTolerance);
  }
}

INSTANTIATE_TEST_SUITE_P(Prompts, PairGoldenTest, ::testing::Range(0, 4));

}  // namespace
}  // namespace arborist::tests
