#include "verifier/step_size.h"

#include <algorithm>
#include <iterator>
#include <set>

#include "common/base/check.h"
#include "kernels/tree_attention_mla/table_bounds.h"

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

int BoundOf(int value, const std::vector<int>& bounds) {
  return *std::lower_bound(bounds.begin(), bounds.end(), value);
}

}  // namespace

StepSize LargestStep(const StepCapacity& capacity) {
  return {.rows = capacity.max_rows,
          .logits_rows = capacity.max_logits_rows,
          .sequences = capacity.max_sequences,
          .trees = capacity.max_sequences,
          .pages_per_sequence = capacity.max_pages_per_sequence};
}

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

StepSize StepSizes::Whole(int rows, int logits_rows) const {
  return {.rows = rows,
          .logits_rows = logits_rows,
          .sequences = std::min(rows, capacity_.max_sequences),
          .trees = std::min(logits_rows, capacity_.max_sequences),
          .pages_per_sequence = capacity_.max_pages_per_sequence};
}

StepSize StepSizes::TreesAlone(int rows, int sequences, int pages) {
  return {.rows = rows,
          .logits_rows = rows,
          .sequences = sequences,
          .trees = sequences,
          .pages_per_sequence = pages};
}

StepSize StepSizes::For(const StepContents& step) const {
  Check(step.rows >= 1 && step.rows <= capacity_.max_rows && step.logits_rows <= capacity_.max_logits_rows &&
            step.sequences <= std::min(step.rows, capacity_.max_sequences) &&
            step.pages <= capacity_.max_pages_per_sequence,
        "a step within the capacity");
  if (step.logits_rows == step.rows) {
    const int rows = BoundOf(step.rows, tree_bounds_);
    return TreesAlone(rows, BoundOf(step.sequences, kernels::SequenceBounds(rows, capacity_.max_sequences)),
                      BoundOf(step.pages, kernels::PageBounds(rows, capacity_.max_pages_per_sequence)));
  }
  return Whole(BoundOf(step.rows, bounds_), step.logits_rows == 0 ? 0 : BoundOf(step.logits_rows, bounds_));
}

std::vector<StepSize> StepSizes::All() const {
  std::vector<StepSize> sizes;
  for (const int rows : bounds_) {
    sizes.push_back(Whole(rows, 0));
    for (const int logits_rows : bounds_) {
      if (logits_rows < rows && logits_rows <= capacity_.max_logits_rows) {
        sizes.push_back(Whole(rows, logits_rows));
      }
    }
  }
  for (const int rows : tree_bounds_) {
    for (const int sequences : kernels::SequenceBounds(rows, capacity_.max_sequences)) {
      for (const int pages : kernels::PageBounds(rows, capacity_.max_pages_per_sequence)) {
        sizes.push_back(TreesAlone(rows, sequences, pages));
      }
    }
  }
  return sizes;
}

}  // namespace arborist::verifier
