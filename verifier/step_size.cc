#include "verifier/step_size.h"

#include <algorithm>
#include <iterator>
#include <set>

#include "common/base/check.h"

namespace arborist::verifier {
namespace {

// A root alone, small trees, then the trees of 8, 16, 32, 64 and 128 nodes with their root. Above that, sizes
// of steps with prompt rows double: they come with any number of tree rows, so each is there many times.
constexpr int kSmallBounds[] = {1, 2, 4, 9, 17, 33, 65, 129, 256};
constexpr int kLargeBound = 512;
// Those of trees alone are closer: 16 trees of 8 nodes are 144 rows, of 16 nodes 272.
constexpr int kTreeBounds[] = {192, 320, 384, 448};
constexpr int kTreeStride = 256;

std::vector<int> UpTo(int most, const std::set<int>& bounds) {
  std::vector<int> kept;
  std::copy_if(bounds.begin(), bounds.end(), std::back_inserter(kept),
               [&](int bound) { return bound >= 1 && bound <= most; });
  return kept;
}

}  // namespace

StepSizes::StepSizes(const StepCapacity& capacity) : capacity_(capacity) {
  std::set<int> bounds(std::begin(kSmallBounds), std::end(kSmallBounds));
  for (int rows = kLargeBound; rows < capacity.max_rows; rows *= 2) {
    bounds.insert(rows);
  }
  bounds.insert({capacity.max_logits_rows, capacity.max_rows});
  bounds_ = UpTo(capacity.max_rows, bounds);
  bounds.insert(std::begin(kTreeBounds), std::end(kTreeBounds));
  for (int rows = kLargeBound; rows < capacity.max_logits_rows; rows += kTreeStride) {
    bounds.insert(rows);
  }
  tree_bounds_ = UpTo(capacity.max_logits_rows, bounds);
}

StepSize StepSizes::For(int rows, int logits_rows) const {
  Check(rows >= 1 && rows <= capacity_.max_rows && logits_rows <= capacity_.max_logits_rows,
        "a step within the capacity");
  const std::vector<int>& bounds = logits_rows == rows ? tree_bounds_ : bounds_;
  const int row_bound = *std::lower_bound(bounds.begin(), bounds.end(), rows);
  const int logits_bound =
      logits_rows == 0 ? 0 : *std::lower_bound(bounds.begin(), bounds.end(), logits_rows);
  return {.rows = row_bound,
          .logits_rows = logits_bound,
          .sequences = std::min(row_bound, capacity_.max_sequences),
          .trees = std::min(logits_bound, capacity_.max_sequences),
          .pages_per_sequence = capacity_.max_pages_per_sequence};
}

std::vector<int> StepSizes::BoundsOfTreesAlone() const { return tree_bounds_; }

std::vector<StepSize> StepSizes::All() const {
  std::vector<StepSize> sizes;
  for (const int rows : bounds_) {
    sizes.push_back(For(rows, 0));
    for (const int logits_rows : bounds_) {
      if (logits_rows <= std::min(rows, capacity_.max_logits_rows)) {
        sizes.push_back(For(rows, logits_rows));
      }
    }
  }
  for (const int rows : tree_bounds_) {
    if (!std::binary_search(bounds_.begin(), bounds_.end(), rows)) {
      sizes.push_back(For(rows, rows));
    }
  }
  return sizes;
}

}  // namespace arborist::verifier
