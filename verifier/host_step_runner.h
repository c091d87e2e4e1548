#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "common/threads/thread_pool.h"
#include "kernels/kernel_set.h"
#include "verifier/feature_projection.h"
#include "verifier/host_choice.h"
#include "verifier/kv_cache.h"
#include "verifier/model/model.h"
#include "verifier/step_batch.h"
#include "verifier/step_runner.h"

namespace arborist::verifier {

// The step on the CPU, kernel by kernel: each is done when it returns, and the host reads between them.
class HostStepRunner final : public StepRunner {
 public:
  // model, cache and projection (null: no features) outlive the runner; the kernel pointers are copied.
  HostStepRunner(const StepCapacity& capacity, Model* model, KvCache* cache, FeatureProjection* projection,
                 const kernels::KernelSet& kernels, StreamView stream);

  using StepRunner::Run;
  absl::Status Run(std::span<const StepTree> trees, std::span<const StepChunk> chunks,
                   absl::FunctionRef<void()> meanwhile) override;
  const TreeOutcome& outcome(int tree) const override { return outcomes_[tree]; }
  const ChunkOutcome& chunk_outcome(int chunk) const override { return chunk_outcomes_[chunk]; }
  void CopyPathFeatures(int tree, int32_t rows, BFloat16* out) const override;
  absl::Status ReadFeatures(std::span<const int32_t> page_table, int32_t position, int32_t rows,
                            BFloat16* out) override;

 private:
  absl::Status Choose(View2<const float> raw, std::span<const StepTree> trees,
                      std::span<const StepChunk> chunks);
  void Sample(View2<const float> logits, std::span<const StepTree> trees, std::span<const StepChunk> chunks);
  absl::Status SampleSequence(View2<const float> logits, size_t sequence);
  absl::Status SampleRows(View2<const float> logits, int begin, int end);
  absl::Status Accept(std::span<const StepTree> trees);
  void TellTopLists(int tree, int32_t k);
  absl::Status Compact(std::span<const StepTree> trees);
  absl::Status StoreFeatures(const ForwardResult& forward, std::span<const StepTree> trees,
                             std::span<const StepChunk> chunks);

  StepCapacity capacity_;
  Model* model_;
  KvCache* cache_;
  FeatureProjection* projection_;
  kernels::KernelSet kernels_;
  StreamView stream_;

  HostChoice choice_;
  bool controlled_ = false;     // the step is
  View2<const float> choices_;  // what its rows chose from

  StepBatch batch_;
  std::vector<ChunkOutcome> chunk_outcomes_;  // [sequences]
  std::vector<TreeOutcome> outcomes_;         // [sequences]
  std::vector<kernels::SamplingParams> params_;
  std::vector<int32_t> noise_position_;  // [logits rows] of the token being chosen
  std::vector<TokenId> chosen_;          // [logits rows]
  std::vector<float> log_prob_;          // [logits rows]
  std::vector<float> path_log_prob_;     // [logits rows]
  std::vector<TokenLogProb> path_top_;   // [logits rows, kMaxTopLogProbs]
  std::vector<int32_t> path_;            // [logits rows]
  std::vector<int32_t> path_length_;     // [trees]
  std::vector<TokenId> bonus_;           // [trees]
  std::vector<int32_t> accept_error_;    // [trees]
  std::vector<int32_t> from_;            // moves, then feature rows
  std::vector<int32_t> to_;
  std::vector<std::byte> sample_scratch_;
};

}  // namespace arborist::verifier
