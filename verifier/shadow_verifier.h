#pragma once

#include <cstdint>
#include <memory>
#include <random>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/ids.h"
#include "common/device/device.h"
#include "verifier/kv_planes.h"
#include "verifier/model/model.h"
#include "verifier/shadow.h"
#include "verifier/shadow_sample.h"
#include "verifier/shadow_worker.h"
#include "verifier/step_runner.h"

namespace arborist::verifier {

// Takes the samples of shadow verification out of steps and has them compared. A runner, on the step's
// thread: Begin draws whether this step is one of the chosen, and what of it; then Forward runs the model
// where the runner would, never recorded, before any K/V row moves (on a GPU the recorded step follows, which
// writes the same bytes to the same slots again); AfterStep, when all is done, takes the rest.
//
// It only reads what the step computes with. An error is the model's, or one of the device's copies.
class ShadowVerifier final : public ForwardObserver {
 public:
  // Planes and device outlive it.
  ShadowVerifier(const ShadowOptions& options, int layers, KvPlanes& planes, Device& device);

  // One of the steps that are not chosen costs the drawing of a number. The spans of a chosen one stay until
  // AfterStep.
  bool Begin(std::span<const StepTree> trees, std::span<const StepChunk> chunks);
  absl::StatusOr<ForwardResult> Forward(Model& model, const StepBatchView& batch);
  // `forward` is the live step's, `choices` the logits that its rows chose from, which are the raw ones but
  // in a controlled step; `chosen` and `log_prob` are of every row with logits. All in the memory of device
  // or host; outcomes are those of `runner`.
  absl::Status AfterStep(const ForwardResult& forward, View2<const float> choices, const TokenId* chosen,
                         const float* log_prob, const StepRunner& runner);

  absl::Status Attended(int layer, const kernels::TreeAttentionMlaArgs& args) override;
  absl::Status Routed(int layer, const kernels::MoeRouteArgs& args) override;

 private:
  bool Wants(ShadowKernel kernel) const;
  absl::Status CopyCache();
  absl::Status CopySlots(int layer, std::span<const int32_t> slots, std::byte* out);
  absl::Status CopyLogits(View2<const float> logits, std::vector<float>& out);
  absl::Status CopySampling(const ForwardResult& forward, View2<const float> choices,
                            std::span<const TokenId> chosen, std::span<const float> log_prob);
  absl::Status CopyTree(std::vector<TokenId> chosen, const TreeOutcome& outcome);

  const ShadowOptions options_;
  const int layers_;
  KvPlanes& planes_;
  Device& device_;
  std::vector<ShadowKernel> kernels_;
  std::mt19937_64 random_;
  int64_t steps_ = 0;

  // Of the step under way.
  std::span<const StepTree> trees_;
  std::unique_ptr<ShadowSample> sample_;
  int layer_ = 0;
  int focus_ = -1;            // the tree that is compared as a whole
  std::vector<float> eager_;  // [tree rows, vocabulary] of the step that is not recorded

  ShadowWorker worker_;
};

}  // namespace arborist::verifier
