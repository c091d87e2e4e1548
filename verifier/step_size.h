#pragma once

#include <compare>
#include <vector>

namespace arborist::verifier {

// The most that a step holds.
struct StepCapacity {
  int max_rows = 0;
  int max_logits_rows = 0;
  int max_sequences = 0;
  int max_pages_per_sequence = 0;
};

// The sizes of a recorded step: what is in a step is padded up to them.
struct StepSize {
  int rows = 0;
  int logits_rows = 0;
  int sequences = 0;           // with a page table
  int trees = 0;               // with sampling parameters and an outcome
  int pages_per_sequence = 0;  // all that a sequence can have

  auto operator<=>(const StepSize&) const = default;
};

// Which sizes steps are recorded in: few, so that all can be recorded at the start, and close enough that
// padding costs little.
class StepSizes {
 public:
  explicit StepSizes(const StepCapacity& capacity);

  // The smallest that holds so many rows, of which the first logits_rows have logits. Within the capacity.
  StepSize For(int rows, int logits_rows) const;
  // Rows of steps of trees alone: ascending.
  std::vector<int> BoundsOfTreesAlone() const;
  // Every size there is, with prompt rows and without.
  std::vector<StepSize> All() const;

 private:
  StepCapacity capacity_;
  std::vector<int> bounds_;       // of steps with prompt rows
  std::vector<int> tree_bounds_;  // of steps of trees alone: all of those, and more
};

}  // namespace arborist::verifier
