#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "common/base/ids.h"
#include "common/tensor/view.h"
#include "common/threads/thread_pool.h"
#include "kernels/kernel_set.h"
#include "verifier/control_lists.h"
#include "verifier/step_batch.h"
#include "verifier/step_runner.h"
#include "verifier/step_size.h"

namespace arborist::verifier {

// What a controlled step does beyond a plain one on the CPU: logits that sampling sees instead of the raw
// ones, and log-probabilities under the raw ones. Allocates at the start.
class HostChoice {
 public:
  HostChoice(const StepCapacity& capacity, int64_t vocabulary, const kernels::KernelSet& kernels,
             StreamView stream);

  // The logits to choose from, of all rows with logits; as long valid as the step.
  absl::StatusOr<View2<const float>> Apply(std::span<const StepTree> trees, std::span<const StepChunk> chunks,
                                           const StepBatch& batch, View2<const float> raw);
  // Then, with what was chosen, of every row: log_prob[i] of the token chosen after row i, or of the one that
  // a scored chunk asks for.
  absl::Status TellLogProbs(View2<const float> raw, const TokenId* chosen, float* log_prob);
  // Then, the row's top list of its tree's k tokens.
  void CopyTopList(int64_t row, int32_t k, TokenLogProb* out) const;

 private:
  absl::Status FindTop(View2<const float> raw, int64_t begin, int64_t end);

  const kernels::KernelSet kernels_;
  const StreamView stream_;
  const ControlCapacity capacity_;
  ControlLists lists_;
  std::vector<kernels::RowControls> row_;
  std::vector<kernels::SequenceControls> sequence_;
  std::vector<TokenId> forced_;
  std::vector<kernels::TopKParams> top_params_;
  std::vector<int32_t> top_count_;
  std::vector<kernels::LogitEntry> entry_;
  std::vector<uint32_t> mask_;
  std::vector<TokenId> top_;         // [rows, kMaxTopLogProbs]
  std::vector<float> top_log_prob_;  // of top_k_log_prob; not told
  std::vector<float> log_prob_;      // [rows, kLogProbColumns]
  std::vector<std::byte> choice_;    // [rows, vocabulary]; before that, scratch of the top lists
};

}  // namespace arborist::verifier
