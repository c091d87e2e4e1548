#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/ids.h"
#include "common/tensor/view.h"
#include "common/threads/thread_pool.h"
#include "kernels/kernel_set.h"
#include "verifier/feature_projection.h"
#include "verifier/kv_cache.h"
#include "verifier/model/model.h"
#include "verifier/step_batch.h"

namespace arborist::verifier {

// One sequence's tree in a step. K/V of positions [0, root_position) is in its pages.
struct StepTree {
  std::span<const int32_t> page_table;
  int32_t root_position = 0;
  std::span<const TokenId> token;
  std::span<const int32_t> parent;
  kernels::SamplingParams sampling;
};

// One sequence's prompt tokens in a step.
struct StepChunk {
  std::span<const int32_t> page_table;
  int32_t first_position = 0;
  std::span<const TokenId> tokens;
};

// What became of a tree. Spans are valid until the next Run.
struct TreeOutcome {
  absl::Status status;               // of this tree alone: the model's logits were not finite
  std::span<const int32_t> path;     // accepted nodes, the root (0) first; K/V now at root_position + i
  TokenId bonus{};                   // chosen after the last of the path
  std::span<const float> log_probs;  // [path] of the token chosen after each node of the path, raw logits
  bool compacted = false;            // the path was not contiguous
};

struct StepCapacity {
  int max_rows = 0;
  int max_logits_rows = 0;
  int max_sequences = 0;
  int max_pages_per_sequence = 0;
};

// The step, without threads or streams: forward -> sample -> accept -> compact -> features. A row's result
// never depends on what else is in the step. All memory is allocated at the start.
class StepRunner {
 public:
  // model, cache and projection (null: no features) outlive the runner; the kernel pointers are copied.
  StepRunner(const StepCapacity& capacity, Model* model, KvCache* cache, FeatureProjection* projection,
             const kernels::KernelSet& kernels, StreamView stream);

  // At most the capacity. An error means that nothing of this step may be used.
  absl::Status Run(std::span<const StepTree> trees, std::span<const StepChunk> chunks);
  const TreeOutcome& outcome(int tree) const { return outcomes_[tree]; }

 private:
  void FillBatch(std::span<const StepTree> trees, std::span<const StepChunk> chunks);
  void Sample(const ForwardResult& forward, std::span<const StepTree> trees);
  absl::Status SampleRows(const ForwardResult& forward, int begin, int end);
  absl::Status Accept(std::span<const StepTree> trees);
  absl::Status Compact(std::span<const StepTree> trees);
  absl::Status StoreFeatures(const ForwardResult& forward, std::span<const StepTree> trees,
                             std::span<const StepChunk> chunks);

  StepCapacity capacity_;
  Model* model_;
  KvCache* cache_;
  FeatureProjection* projection_;
  kernels::KernelSet kernels_;
  StreamView stream_;

  StepBatch batch_;
  std::vector<TreeOutcome> outcomes_;  // [sequences]
  std::vector<kernels::SamplingParams> params_;
  std::vector<int32_t> noise_position_;  // [logits rows] of the token being chosen
  std::vector<TokenId> chosen_;          // [logits rows]
  std::vector<float> log_prob_;          // [logits rows]
  std::vector<float> path_log_prob_;     // [logits rows]
  std::vector<int32_t> path_;            // [logits rows]
  std::vector<int32_t> path_length_;     // [trees]
  std::vector<TokenId> bonus_;           // [trees]
  std::vector<int32_t> accept_error_;    // [trees]
  std::vector<int32_t> from_;            // moves, then feature rows
  std::vector<int32_t> to_;
  std::vector<std::byte> sample_scratch_;
};

}  // namespace arborist::verifier
