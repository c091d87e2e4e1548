#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "common/projection/testing/checkpoint_writer.h"
#include "common/threads/thread_pool.h"
#include "drafter/context_cache.h"
#include "drafter/dflash_proposer.h"
#include "drafter/model/testing/golden_drafter.h"

namespace arborist::drafter::testing {

enum class Weights { kAsStored, kWidened };

// A golden drafter with a target directory that lends its two matrices, and a random sequence of tokens and
// features. Widened: both directories hold the same numbers as fp32.
class SmallPair {
 public:
  explicit SmallPair(const std::string& golden = "full", Weights weights = Weights::kAsStored);

  DFlashProposer& proposer() const { return *proposer_; }
  // With the pair's directories and a pool of its own.
  std::unique_ptr<DFlashProposer> NewProposer(DFlashOptions options) const;
  std::unique_ptr<DFlashProposer> NewProposer(DFlashOptions options, const kernels::KernelSet& kernels,
                                              Device& device) const;
  ThreadPool& threads() const { return *threads_; }
  const std::string& drafter_directory() const { return drafter_path_; }
  const std::string& target_directory() const { return target_.path(); }
  int32_t vocabulary() const { return static_cast<int32_t>(golden_.settings.vocabulary); }

  TokenId token(int position) const { return tokens_[position]; }
  std::span<const TokenId> Tokens(int first, int count) const {
    return std::span(tokens_).subspan(first, count);
  }
  std::vector<BFloat16> Features(int first, int rows) const;

  // A ready context of `length` committed tokens.
  std::unique_ptr<DraftContext> Context(int length) const { return Context(length, *proposer_); }
  std::unique_ptr<DraftContext> Context(int length, DFlashProposer& proposer) const;

  // What the model itself says of all block - 1 depths, with the whole context; valid until the next call.
  View2<const float> Logits(int length) const;

 private:
  static constexpr int kLength = 128;

  GoldenDrafter golden_;
  arborist::testing::ScratchDirectory target_, widened_;
  std::string drafter_path_;
  std::vector<TokenId> tokens_;
  std::vector<BFloat16> features_;
  std::unique_ptr<ThreadPool> threads_;
  std::unique_ptr<Device> device_;
  mutable std::vector<std::unique_ptr<ThreadPool>> more_threads_;
  std::unique_ptr<DFlashProposer> proposer_;
  std::unique_ptr<DFlashModel> model_;
};

}  // namespace arborist::drafter::testing
