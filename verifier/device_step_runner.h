#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/device/device.h"
#include "kernels/kernel_set.h"
#include "verifier/control_input.h"
#include "verifier/feature_projection.h"
#include "verifier/kv_cache.h"
#include "verifier/model/model.h"
#include "verifier/step_batch.h"
#include "verifier/step_input.h"
#include "verifier/step_output.h"
#include "verifier/step_runner.h"
#include "verifier/step_size.h"

namespace arborist::verifier {

// The step on a GPU: one copy in, one recorded piece of work from the embedding to the feature plane, one
// copy out, and only then does the host look. Steps are padded to few sizes, each recorded twice: plain and
// controlled.
class DeviceStepRunner final : public StepRunner {
 public:
  // model, cache, projection (null: no features) and device outlive the runner. ResourceExhausted: the device
  // holds no more.
  static absl::StatusOr<std::unique_ptr<DeviceStepRunner>> Create(const StepCapacity& capacity, Model* model,
                                                                  KvCache* cache,
                                                                  FeatureProjection* projection,
                                                                  const kernels::KernelSet& kernels,
                                                                  Device& device);

  // Records every size of steps, so that none allocates later. Without it a size is recorded when it first
  // comes.
  absl::Status RecordAll();

  using StepRunner::Run;
  absl::Status Run(std::span<const StepTree> trees, std::span<const StepChunk> chunks,
                   absl::FunctionRef<void()> meanwhile) override;
  const TreeOutcome& outcome(int tree) const override { return outcomes_[tree]; }
  const ChunkOutcome& chunk_outcome(int chunk) const override { return chunk_outcomes_[chunk]; }
  void CopyPathFeatures(int tree, int32_t rows, BFloat16* out) const override;
  absl::Status ReadFeatures(std::span<const int32_t> page_table, int32_t position, int32_t rows,
                            BFloat16* out) override;

 private:
  DeviceStepRunner(const StepCapacity& capacity, Model* model, KvCache* cache, FeatureProjection* projection,
                   const kernels::KernelSet& kernels, Device& device, StepInput input, ControlInput controls);
  absl::Status Allocate();
  absl::StatusOr<RecordedWork*> Recorded(const StepKind& kind);
  absl::Status Enqueue(const StepKind& kind);
  absl::Status EnqueueSample(const StepSize& size, const StepArrays& in, View2<const float> logits,
                             View1<float> log_prob, const StepOutput& out);
  absl::Status EnqueueControlled(const StepSize& size, const StepArrays& in, View2<const float> raw,
                                 const StepOutput& out);
  absl::Status EnqueueAccept(const StepSize& size, const StepArrays& in, const StepOutput& out);
  absl::Status ReadOutcomes(const StepKind& kind, std::span<const StepTree> trees,
                            std::span<const StepChunk> chunks);
  absl::Status ReadTree(const StepTree& tree, int index);
  absl::Status CheckFinite(int sequence) const;
  View2<float> Choices(int64_t rows) const;

  const StepCapacity capacity_;
  const StepSizes sizes_;
  Model* model_;
  KvCache* cache_;
  FeatureProjection* projection_;
  const kernels::KernelSet kernels_;
  Device& device_;
  const int64_t hidden_;  // of a feature row; 0 without a projection

  StepBatch batch_;
  std::vector<kernels::SamplingParams> sampling_;  // [trees]
  StepInput input_;
  ControlInput controls_;
  std::map<StepKind, std::unique_ptr<RecordedWork>> recorded_;
  DeviceMemory chosen_;  // [logits rows]
  DeviceMemory moves_;   // from, to and feature slot, [rows] each
  DeviceMemory sample_scratch_;
  DeviceMemory choices_;           // [logits rows, vocabulary] of a controlled step
  DeviceMemory top_edges_;         // [logits rows, kMaxTopLogProbs] of top_k_log_prob; not told
  DeviceMemory top_scratch_;       // of top_k_log_prob
  DeviceMemory log_prob_scratch_;  // of token_log_prob
  DeviceMemory output_;
  DeviceMemory host_output_;

  StepOutput result_;                         // of the last step, in host_output_
  std::vector<ChunkOutcome> chunk_outcomes_;  // [sequences]
  std::vector<TreeOutcome> outcomes_;
  std::vector<float> row_log_prob_;     // [logits rows]
  std::vector<float> path_log_prob_;    // [logits rows]
  std::vector<TokenLogProb> path_top_;  // [logits rows, kMaxTopLogProbs]
};

}  // namespace arborist::verifier
