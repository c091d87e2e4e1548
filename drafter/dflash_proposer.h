#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "absl/status/statusor.h"
#include "common/device/device.h"
#include "common/weights/checkpoint.h"
#include "drafter/context_pool.h"
#include "drafter/draft_queue.h"
#include "drafter/draft_round.h"
#include "drafter/model/dflash_model.h"
#include "drafter/proposer.h"
#include "kernels/kernel_set.h"

namespace arborist::drafter {

struct DFlashOptions {
  std::string drafter_directory{};
  std::string target_directory{};  // lends embed_tokens and lm_head
  float beta = 1;                  // sharpness of the scores: log_softmax(beta * x)
  // Positions before the root that full layers see, at most; drafters are trained on a few thousand. 0 = all.
  int32_t context_window = 4096;
  // Positions served, at most; 0 = the drafter's own max_position_embeddings.
  int32_t max_positions = 0;
  // On a GPU: contexts that have memory there, and sequences that are drafted together at most.
  int max_sequences = 64;
  int max_together = 32;
  // Hears that the device cannot be used any more, from the thread whose call noticed. May be empty.
  std::function<void(const absl::Status&)> on_device_failure{};
};

// Trees from a DFlash drafter: one forward pass gives candidates for every depth, the best-first builder
// makes the tree. Many contexts share one model, and may live on any thread: on the CPU their calls take
// turns, on a GPU those that wait are drafted together. The proposer outlives its contexts.
class DFlashProposer : public Proposer {
 public:
  // `kernels` (the device's column) and `device` outlive the proposer; nobody else uses the device during a
  // call. Everything that a round needs is allocated and recorded here.
  static absl::StatusOr<std::unique_ptr<DFlashProposer>> Create(const DFlashOptions& options,
                                                                const kernels::KernelSet& kernels,
                                                                Device& device);
  // On the CPU, with these threads.
  static absl::StatusOr<std::unique_ptr<DFlashProposer>> Create(const DFlashOptions& options,
                                                                const kernels::KernelSet& kernels,
                                                                ThreadPool& threads);

  absl::StatusOr<std::unique_ptr<DraftContext>> NewContext() override;
  bool needs_features() const override { return true; }
  int feature_window() const override { return window_; }
  std::string projection_hash() const override { return projection_hash_; }
  int max_depth() const override;

  const DFlashSettings& settings() const { return model_->settings(); }

 private:
  friend class DFlashContext;
  DFlashProposer() = default;
  absl::Status MakeRound(const DFlashOptions& options, DFlashSettings settings, DFlashWeights weights,
                         const kernels::KernelSet& kernels, Device& device);
  ContextCache NewCache(int64_t first_row);
  // Features are bf16 rows of neighbouring positions; now, in turn with the rounds of others.
  absl::Status WriteFeatures(int32_t first_position, int32_t rows, std::span<const BFloat16> features,
                             ContextCache& cache);

  std::unique_ptr<Device> own_device_;
  Checkpoint drafter_, target_;  // keep the weights mapped
  std::string projection_hash_;
  int32_t window_ = 0;
  std::unique_ptr<DFlashModel> model_;
  std::unique_ptr<ContextPool> pool_;  // null on the CPU, where contexts own their memory
  std::unique_ptr<DraftRound> round_;
  std::unique_ptr<DraftQueue> queue_;
};

}  // namespace arborist::drafter
