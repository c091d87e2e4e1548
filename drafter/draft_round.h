#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/device/device.h"
#include "common/tree/token_tree.h"
#include "drafter/context_cache.h"
#include "drafter/draft_batch.h"
#include "drafter/model/dflash_model.h"
#include "drafter/proposer.h"
#include "kernels/kernel_set.h"

namespace arborist::drafter {

// What one sequence asks of a round.
struct DraftRequest {
  TokenId root{};
  int32_t position = 0;  // of the root
  ContextView context;   // committed positions before it
  ProposeArgs args;      // nodes >= 1
  // Feature rows that enter the context first (bf16, [append_rows, hidden]), of positions that `cache` has
  // room for.
  const ContextCache* cache = nullptr;
  int32_t append_position = 0;
  int32_t append_rows = 0;  // at most DraftRound::append_rows()
  const BFloat16* append = nullptr;
};

struct DraftRoundOptions {
  float beta = 1;
  int max_depth = 0;
  int64_t append_rows = 0;  // of a sequence in a round
  // With a device's own planes: rounds of up to max_streams sequences are recorded, and contexts lie in
  // these.
  int64_t max_streams = 1;
  ContextPlanes planes;
  int64_t max_context = 0;
};

// From committed tokens to trees: one pass of the model for all sequences of a round, candidates for every
// depth, trees. On CUDA that is recorded work for 1, 2, 4, 8 ... sequences, recorded here: one copy in, no
// decision of the host between, one copy out. On the CPU a round is one sequence's and runs anew each time.
// One call at a time.
class DraftRound {
 public:
  // `model` and `kernels` outlive the round.
  static absl::StatusOr<std::unique_ptr<DraftRound>> Create(const DraftRoundOptions& options,
                                                            DFlashModel& model,
                                                            const kernels::KernelSet& kernels);

  // A tree for each of 1 .. max_streams requests. An error is everybody's.
  absl::Status Run(std::span<const DraftRequest* const> requests, std::span<TokenTree* const> trees);

  int64_t max_streams() const { return options_.max_streams; }
  int64_t append_rows() const { return options_.append_rows; }
  Device& device() const { return device_; }

 private:
  // A round of so many sequences: its inputs and outputs, laid out in the shared memory.
  struct Size {
    int64_t streams = 0;
    DraftBatch host, device;
    DraftedTrees host_trees, device_trees;
    size_t input_bytes = 0;
    size_t output_bytes = 0;
    std::unique_ptr<RecordedWork> work;
  };

  DraftRound(const DraftRoundOptions& options, DFlashModel& model, const kernels::KernelSet& kernels)
      : options_(options), model_(model), kernels_(kernels), device_(model.device()) {}
  absl::Status Allocate();
  absl::Status Record();
  void LayOut(int64_t streams);
  void Fill(std::span<const DraftRequest* const> requests, Size& size);
  absl::Status Enqueue(const Size& size, const ContextPlanes& planes, int64_t max_context, int64_t depths);
  absl::Status Candidates(const Size& size, View2<const float> logits);

  DraftRoundOptions options_;
  DFlashModel& model_;
  const kernels::KernelSet& kernels_;
  Device& device_;
  int64_t columns_ = 0;  // candidates of a depth
  DeviceMemory host_inputs_, device_inputs_, host_outputs_, device_outputs_, candidates_, top_k_scratch_;
  TokenId* candidate_ = nullptr;  // [streams * (block - 1), columns_]
  float* log_prob_ = nullptr;
  std::vector<Size> sizes_;  // ascending
};

}  // namespace arborist::drafter
