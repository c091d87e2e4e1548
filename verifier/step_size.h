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
  int pages_per_sequence = 0;  // of a page table

  auto operator<=>(const StepSize&) const = default;
};

StepSize LargestStep(const StepCapacity& capacity);

// What a step holds.
struct StepContents {
  int rows = 0;
  int logits_rows = 0;
  int sequences = 0;
  int pages = 0;  // of the longest prefix: all that is read through page tables
};

// Which sizes steps are recorded in: few, so that all can be recorded at the start, and close enough that
// padding costs little.
class StepSizes {
 public:
  explicit StepSizes(const StepCapacity& capacity);

  // The smallest that holds a step within the capacity. Steps of trees alone come with page tables of several
  // sizes, for attention on CUDA is divided by them (kernels/tree_attention_mla/table_bounds.h).
  StepSize For(const StepContents& step) const;
  // Rows of steps of trees alone, and of those with prompt rows: ascending.
  std::vector<int> BoundsOfTreesAlone() const { return tree_bounds_; }
  std::vector<int> BoundsWithPrompts() const { return bounds_; }
  // Every size there is, with prompt rows and without.
  std::vector<StepSize> All() const;

 private:
  // With the largest page tables.
  StepSize Whole(int rows, int logits_rows) const;
  static StepSize TreesAlone(int rows, int sequences, int pages);

  StepCapacity capacity_;
  std::vector<int> bounds_;       // of steps with prompt rows
  std::vector<int> tree_bounds_;  // of steps of trees alone: all of those, and more
};

}  // namespace arborist::verifier
