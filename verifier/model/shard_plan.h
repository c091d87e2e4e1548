#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "kernels/linear/linear.h"
#include "verifier/model/model_config.h"

namespace arborist::verifier {

// Which part of the model a rank holds: attention by heads, MLPs and experts by width, the vocabulary by
// rows; everything else whole on every rank. Widths and o_proj inputs are cut at the segment bounds of
// kernels/linear, so that the sums of 1, 2, 4 and 8 ranks agree.
class ShardPlan {
 public:
  struct Range {
    int64_t begin = 0;
    int64_t count = 0;
  };

  // ranks must be 1, 2, 4 or 8 and divide the heads.
  static absl::StatusOr<ShardPlan> Make(const ModelConfig& config, int rank, int ranks);

  int rank() const { return rank_; }
  int ranks() const { return ranks_; }
  int first_segment() const { return rank_ * segment_count(); }
  int segment_count() const { return kernels::kRowParallelSegments / ranks_; }

  Range heads() const { return {rank_ * heads_ / ranks_, heads_ / ranks_}; }
  // This rank's part of a row-parallel product's inputs.
  Range Inputs(int64_t full_inputs) const;
  // Equal slices of ceil(vocabulary / ranks) rows; the last ones may hold fewer, even none.
  int64_t vocabulary_slice() const { return vocabulary_slice_; }
  Range vocabulary() const;

 private:
  ShardPlan() = default;
  int rank_ = 0;
  int ranks_ = 1;
  int64_t heads_ = 0;
  int64_t vocabulary_ = 0;
  int64_t vocabulary_slice_ = 0;
};

}  // namespace arborist::verifier
