#include "verifier/step_size.h"

#include <algorithm>
#include <iterator>
#include <set>

#include "common/base/check.h"

namespace arborist::verifier {
namespace {

// A root alone, small trees, then the trees of 8, 16, 32, 64 and 128 nodes with their root; above that, what
// a tile of rows costs is small beside the step.
constexpr int kSmallBounds[] = {1, 2, 4, 9, 17, 33, 65, 129, 256};
constexpr int kLargeStride = 256;

}  // namespace

StepSizes::StepSizes(const StepCapacity& capacity) : capacity_(capacity) {
  std::set<int> bounds(std::begin(kSmallBounds), std::end(kSmallBounds));
  for (int rows = 2 * kLargeStride; rows < capacity.max_rows; rows += kLargeStride) {
    bounds.insert(rows);
  }
  bounds.insert(capacity.max_logits_rows);
  bounds.insert(capacity.max_rows);
  std::copy_if(bounds.begin(), bounds.end(), std::back_inserter(bounds_),
               [&](int bound) { return bound >= 1 && bound <= capacity.max_rows; });
}

StepSize StepSizes::For(int rows, int logits_rows) const {
  Check(rows >= 1 && rows <= capacity_.max_rows && logits_rows <= capacity_.max_logits_rows,
        "a step within the capacity");
  const int row_bound = *std::lower_bound(bounds_.begin(), bounds_.end(), rows);
  const int logits_bound =
      logits_rows == 0 ? 0 : *std::lower_bound(bounds_.begin(), bounds_.end(), logits_rows);
  return {.rows = row_bound,
          .logits_rows = logits_bound,
          .sequences = std::min(row_bound, capacity_.max_sequences),
          .trees = std::min(logits_bound, capacity_.max_sequences),
          .pages_per_sequence = capacity_.max_pages_per_sequence};
}

std::vector<int> StepSizes::BoundsOfTreesAlone() const {
  std::vector<int> bounds;
  std::copy_if(bounds_.begin(), bounds_.end(), std::back_inserter(bounds),
               [&](int bound) { return bound <= capacity_.max_logits_rows; });
  return bounds;
}

std::vector<StepSize> StepSizes::OfTreesAlone() const {
  std::vector<StepSize> sizes;
  for (const int bound : BoundsOfTreesAlone()) {
    sizes.push_back(For(bound, bound));
  }
  return sizes;
}

}  // namespace arborist::verifier
