#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "drafter/proposer.h"

namespace arborist::drafter {

struct NgramOptions {
  int32_t vocabulary = std::numeric_limits<int32_t>::max();  // ids are below it
  int32_t max_history = 65536;                               // tokens remembered of a sequence, at least
  int depth_limit = kMaxTreeDepth;
};

// Trees from what already stands in prompt and output: no draft model, so it serves every target. Several
// continuations of the recent suffix, and of ever shorter ones, compete best-first; the most frequent tokens
// fill up what the budget leaves. Without logits there is nothing to couple noise with: temperature and seed
// are ignored.
class NgramProposer : public Proposer {
 public:
  static absl::StatusOr<std::unique_ptr<NgramProposer>> Create(const NgramOptions& options);

  absl::StatusOr<std::unique_ptr<DraftContext>> NewContext() override;
  bool needs_features() const override { return false; }
  int feature_window() const override { return 0; }
  std::string projection_hash() const override { return ""; }
  int max_depth() const override { return options_.depth_limit; }

 private:
  explicit NgramProposer(const NgramOptions& options) : options_(options) {}
  NgramOptions options_;
};

}  // namespace arborist::drafter
