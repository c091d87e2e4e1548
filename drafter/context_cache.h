#pragma once

#include <cstdint>
#include <memory>
#include <vector>

namespace arborist::drafter {

// Keys and values of neighbouring positions, as a model reads them.
struct ContextView {
  const float* data = nullptr;
  int64_t plane_stride = 0;  // floats from a layer's keys to its values, and to the next layer's keys
  int32_t first_position = 0;
  int64_t rows = 0;

  const float* key(int64_t layer) const { return data + 2 * layer * plane_stride; }
  const float* value(int64_t layer) const { return data + (2 * layer + 1) * plane_stride; }
};

// A set of positions as sorted, disjoint, non-touching ranges; in practice one or two.
class PositionRanges {
 public:
  void Add(int32_t begin, int32_t end);  // begin <= end
  void DropBelow(int32_t position);
  bool Covers(int32_t begin, int32_t end) const;  // an empty range is covered

 private:
  struct Range {
    int32_t begin;
    int32_t end;
  };
  std::vector<Range> ranges_;
};

// Draft keys and values of one sequence's accepted positions, for all layers. Append-only: rejected drafts
// never enter, so nothing is ever taken back. Holds at least the last `window` positions; older ones are
// dropped when room is needed. The memory is reserved at once and touched only as rows are written.
class ContextCache {
 public:
  // window >= 1 positions of `row_width` floats a layer and plane; no position reaches max_positions.
  ContextCache(int64_t layers, int64_t row_width, int32_t window, int32_t max_positions);

  // Room for positions [first_position, first_position + rows), less those that no longer fit: the answer's
  // range may begin later or be empty. Row r of a layer's plane belongs to answer.first_position + r.
  struct Slot {
    int32_t first_position = 0;
    int32_t rows = 0;
  };
  Slot Reserve(int32_t first_position, int32_t rows);
  // After the rows of a slot were written in every layer.
  void MarkWritten(Slot slot) { written_.Add(slot.first_position, slot.first_position + slot.rows); }

  float* key(int64_t layer, int32_t position) { return At(2 * layer, position); }
  float* value(int64_t layer, int32_t position) { return At(2 * layer + 1, position); }

  bool Covers(int32_t begin, int32_t end) const { return written_.Covers(begin, end); }
  // Covers(begin, end) must hold.
  ContextView View(int32_t begin, int32_t end) const;

  int32_t window() const { return window_; }
  int64_t capacity() const { return capacity_; }

 private:
  float* At(int64_t plane, int32_t position) {
    return memory_.get() + (plane * capacity_ + (position - base_)) * row_width_;
  }
  void MoveBase(int32_t base);

  int64_t planes_;
  int64_t row_width_;
  int32_t window_;
  int64_t capacity_;  // rows of a plane
  int32_t base_ = 0;  // position of row 0
  int32_t end_ = 0;   // one past the last position written or reserved
  PositionRanges written_;
  std::unique_ptr<float[]> memory_;  // [layers, {key, value}, capacity, row_width]
};

}  // namespace arborist::drafter
