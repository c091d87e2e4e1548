#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/threads/thread_pool.h"
#include "common/weights/checkpoint.h"
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
};

// Trees from a DFlash drafter: one forward pass gives candidates for every depth, the best-first builder
// makes the tree. Many contexts share one model: calls are serialised here, so contexts may live on any
// thread. The proposer outlives its contexts.
class DFlashProposer : public Proposer {
 public:
  // `kernels` and `threads` outlive the proposer; nobody else uses `threads` during a call.
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
  DFlashProposer(const kernels::KernelSet& kernels, ThreadPool& threads)
      : kernels_(kernels), threads_(threads) {}

  // Features are bf16 rows of neighbouring positions.
  absl::Status AppendContext(int32_t first_position, int32_t rows, std::span<const BFloat16> features,
                             ContextCache& cache);
  absl::StatusOr<TokenTree> Propose(const ProposeArgs& args, TokenId root, int32_t position,
                                    const ContextView& context);
  absl::StatusOr<TokenTree> BuildTree(const ProposeArgs& args, TokenId root, int32_t position,
                                      View2<const float> logits);

  const kernels::KernelSet& kernels_;
  ThreadPool& threads_;
  Checkpoint drafter_, target_;  // keep the weights mapped
  std::string projection_hash_;
  float beta_ = 1;
  int32_t window_ = 0;

  std::mutex mutex_;  // guards the model's scratch and everything below
  std::unique_ptr<DFlashModel> model_;
  std::vector<float> features_;     // [kContextChunk, hidden]
  std::vector<std::byte> scratch_;  // of top_k_log_prob, [block - 1, vocabulary]
  std::vector<TokenId> candidate_;  // [block - 1, kMaxCandidates]
  std::vector<float> log_prob_;     // [block - 1, kMaxCandidates]
};

}  // namespace arborist::drafter
