#pragma once

#include <atomic>
#include <memory>
#include <vector>

#include "drafter/proposer.h"

namespace arborist::drafter::testing {

// Drafts for a target whose token after t is t + 1: below every node first the right token, then, in trees, a
// wrong one.
class CountingProposer final : public Proposer {
 public:
  absl::StatusOr<std::unique_ptr<DraftContext>> NewContext() override;
  bool needs_features() const override { return !hash_.empty(); }
  int feature_window() const override { return 8; }
  std::string projection_hash() const override { return hash_; }
  int max_depth() const override { return 7; }

  std::string hash_;                    // empty: needs no features
  std::atomic<bool> malformed_{false};  // scores rise
  std::atomic<bool> fail_{false};       // Propose fails
  std::atomic<int> propose_milliseconds_{0};
  std::atomic<int> proposals_{0};
  std::atomic<int> feature_rows_{0};
  std::atomic<float> temperature_{-1};  // of the last ProposeArgs
};

}  // namespace arborist::drafter::testing
