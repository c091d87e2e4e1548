// Shadow verification where steps are recorded: quiet when nothing is wrong, no output byte changes, and each
// planted fault, which is recorded with the step, is caught. Skipped without a GPU.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "kernels/backend.h"
#include "kernels/testing/small_shapes.h"
#include "kernels/tree_attention_mla/tree_attention_mla.h"
#include "verifier/testing/drive.h"
#include "verifier/testing/shadow_log.h"
#include "verifier/testing/test_verifier.h"

namespace arborist::verifier {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;

using kernels::testing::Small;

const int kTokens = Small(48, 24);
const int kNodes = Small(16, 8);

// The tails of drafted rows without the tree: what is left are the committed keys and the row's own.
__global__ void LeaveTreeRowsOut(StepBatchView batch) {
  const int64_t row = threadIdx.x + int64_t{blockIdx.x} * blockDim.x;
  if (row >= batch.logits_rows || batch.logits_row[row] != row || batch.parent[row] < 0) {
    return;
  }
  int64_t first = row;
  while (first > 0 && batch.sequence[first - 1] == batch.sequence[row]) {
    --first;
  }
  const int depth = batch.position[row] - batch.position[first];
  auto* tail = const_cast<int32_t*>(batch.tail_slot) + row * kernels::kMaxTailKeys;
  int32_t& count = const_cast<int32_t*>(batch.tail_count)[row];
  tail[count - 1 - depth] = tail[count - 1];
  count -= depth;
}

__global__ void Overwrite(float* value, float with) { *value = with; }

// A model whose steps somebody tampers with, on the device.
class TamperedModel final : public Model {
 public:
  using Before = std::function<void(const StepBatchView& batch, cudaStream_t stream)>;
  using After = std::function<void(const ForwardResult& result, cudaStream_t stream)>;

  TamperedModel(std::unique_ptr<Model> inner, Device& device, Before before, After after)
      : inner_(std::move(inner)),
        stream_(static_cast<cudaStream_t>(device.stream().cuda_stream)),
        before_(std::move(before)),
        after_(std::move(after)) {}

  const ModelConfig& config() const override { return inner_->config(); }
  int max_rows() const override { return inner_->max_rows(); }
  absl::StatusOr<ForwardResult> Forward(const StepBatchView& batch, KvPlanes& planes) override {
    if (before_) {
      before_(batch, stream_);
    }
    absl::StatusOr<ForwardResult> result = inner_->Forward(batch, planes);
    if (after_ && result.ok() && result->logits.rows > 0) {
      after_(*result, stream_);
    }
    return result;
  }
  void Observe(ForwardObserver* observer) override { inner_->Observe(observer); }

 private:
  std::unique_ptr<Model> inner_;
  cudaStream_t stream_;
  Before before_;
  After after_;
};

class ShadowCudaTest : public ::testing::TestWithParam<DType> {
 protected:
  void SetUp() override {
    if (const auto device = OpenCudaDevice({}); !device.ok()) {
      GTEST_SKIP() << "skipped: " << device.status().message();
    }
    options_.projection = true;
    options_.open_device = [](ThreadPool&) { return *OpenCudaDevice({}); };
    options_.verifier.kv_type = GetParam();
    options_.verifier.max_tree_nodes = kNodes;
    options_.verifier.max_sequences = 1;
    options_.verifier.max_logits_rows = kNodes + 1;
    options_.verifier.max_rows = Small(64, 17);
    options_.verifier.max_context = Small(1000, 300);
    options_.make_model = [](const ModelOptions& model, Device& device) {
      return LoadGolden("v3_groups", model, device);
    };
    args_ = MakeOpen("request", RandomTokens(80, 64, 17), kTokens, kNodes);
    args_.sampling = {.temperature = 0.8f, .top_p = 0.95f, .seed = 5};
    args_.projection_hash = kTestProjectionHash;
    unshadowed_ = std::make_unique<TestVerifier>(options_);
    const Decoded plain = DecodePlain(**unshadowed_, args_);
    ASSERT_EQ(plain.tokens.size(), static_cast<size_t>(kTokens)) << plain.closed;
    text_ = args_.prompt;
    text_.insert(text_.end(), plain.tokens.begin(), plain.tokens.end());
  }

  Decoded Decode(Verifier& verifier) {
    return DecodeTrees(verifier, args_, ReplayDrafter(text_, 64, kNodes, 23));
  }
  Decoded Decode(const ShadowOptions& shadow) {
    options_.verifier.shadow = shadow;
    return Decode(*TestVerifier(options_));
  }
  ShadowOptions Always() { return log_.Options(1, DefaultShadowLimit(GetParam())); }
  void Tamper(TamperedModel::Before before, TamperedModel::After after) {
    options_.make_model = [before = std::move(before), after = std::move(after)](const ModelOptions& model,
                                                                                 Device& device) {
      return std::make_unique<TamperedModel>(LoadGolden("v3_groups", model, device), device, before, after);
    };
  }
  double Worst(ShadowKernel kernel) const {
    double worst = 0;
    for (const ShadowReport& report : log_.reports()) {
      worst = report.kernel == kernel ? std::max(worst, report.difference.relative) : worst;
    }
    return worst;
  }

  TestVerifierOptions options_;
  std::unique_ptr<TestVerifier> unshadowed_;
  OpenArgs args_;
  std::vector<TokenId> text_;  // prompt and true output
  ShadowLog log_;
};

TEST_P(ShadowCudaTest, WithoutAFaultEveryKernelIsWithinTheLimitAndNoOutputByteChanges) {
  const Decoded without = Decode(**unshadowed_);
  const Decoded with = Decode(Always());
  EXPECT_THAT(log_.Faults(), ElementsAre());
  EXPECT_THAT(log_.Kernels(), ::testing::UnorderedElementsAreArray(kShadowKernels));
  for (const ShadowKernel kernel : kShadowKernels) {
    std::printf("%s: worst relative difference %.3g\n", std::string(Name(kernel)).c_str(), Worst(kernel));
  }
  EXPECT_EQ(with.tokens, without.tokens);
  EXPECT_EQ(with.log_probs, without.log_probs);
  EXPECT_EQ(with.features, without.features);
  EXPECT_EQ(with.rounds, without.rounds);
}

TEST_P(ShadowCudaTest, ControlledStepsAreComparedWithWhatTheyChoseFrom) {
  args_.controls.repetition_penalty = 1.5f;
  args_.controls.frequency_penalty = 0.5f;
  args_.controls.allowed_token_ids = {TokenId{1},  TokenId{2},  TokenId{30},
                                      TokenId{31}, TokenId{32}, TokenId{63}};
  args_.controls.top_log_probs = 3;
  const Decoded without = Decode(**unshadowed_);
  const Decoded with = Decode(Always());
  EXPECT_THAT(log_.Faults(), ElementsAre());
  EXPECT_THAT(log_.Kernels(), ::testing::UnorderedElementsAreArray(kShadowKernels));
  EXPECT_EQ(with.tokens, without.tokens);
  EXPECT_EQ(with.log_probs, without.log_probs);
  EXPECT_EQ(with.top_log_probs, without.top_log_probs);
}

TEST_P(ShadowCudaTest, TreeRowsLeftOutOfTheSlotMapAreCaught) {
  Tamper(
      [](const StepBatchView& batch, cudaStream_t stream) {
        if (batch.logits_rows > 0) {
          LeaveTreeRowsOut<<<static_cast<unsigned>(batch.logits_rows + 63) / 64, 64, 0, stream>>>(batch);
        }
      },
      nullptr);
  Decode(Always());
  EXPECT_THAT(log_.FaultyKernels(), ElementsAre(ShadowKernel::kTreeAttentionMla));
  std::printf("attention without the tree's rows: relative difference %.3g\n",
              Worst(ShadowKernel::kTreeAttentionMla));
}

TEST_P(ShadowCudaTest, ALogitThatIsNotANumberIsCaught) {
  Tamper(nullptr, [](const ForwardResult& result, cudaStream_t stream) {
    Overwrite<<<1, 1, 0, stream>>>(const_cast<float*>(result.logits.row(0)) + 3, NAN);
  });
  ShadowOptions options = Always();
  options.rows = 64;
  EXPECT_FALSE(Decode(options).closed.ok());
  EXPECT_THAT(log_.FaultyKernels(), Contains(ShadowKernel::kSampleTarget));
}

TEST_P(ShadowCudaTest, ARecordingThatComputesSomethingElseIsCaught) {
  Tamper(nullptr, [](const ForwardResult& result, cudaStream_t stream) {
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    ASSERT_EQ(cudaStreamIsCapturing(stream, &status), cudaSuccess);
    if (status == cudaStreamCaptureStatusActive) {
      Overwrite<<<1, 1, 0, stream>>>(const_cast<float*>(result.logits.row(0)) + 3, 0.125f);
    }
  });
  ShadowOptions options = Always();
  options.rows = 64;
  Decode(options);
  EXPECT_THAT(log_.FaultyKernels(), ElementsAre(ShadowKernel::kRecordedStep));
  std::printf("attention, 64 rows a step: worst relative difference %.3g\n",
              Worst(ShadowKernel::kTreeAttentionMla));
}

TEST_P(ShadowCudaTest, ForgottenCompactionIsCaught) {
  kernels::KernelSet broken = kernels::KernelsFor(DeviceKind::kCuda);
  broken.kv_compact = [](const kernels::KvCompactArgs&, StreamView) { return absl::OkStatus(); };
  options_.kernels = &broken;
  Decode(Always());
  EXPECT_THAT(log_.FaultyKernels(), ElementsAre(ShadowKernel::kKvCompact));
}

INSTANTIATE_TEST_SUITE_P(KvTypes, ShadowCudaTest, ::testing::Values(DType::kBF16, DType::kF32),
                         [](const auto& info) { return std::string(Name(info.param)); });

}  // namespace
}  // namespace arborist::verifier
