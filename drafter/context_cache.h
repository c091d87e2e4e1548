#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/device/device.h"

namespace arborist::drafter {

// Draft keys and values of all layers in a device's memory: [layers, {key, value}, rows, row_width] where
// `plane_stride` floats lie between planes. Several sequences may have their rows in one.
struct ContextPlanes {
  float* data = nullptr;
  int64_t plane_stride = 0;
  int64_t rows = 0;

  float* key(int64_t layer) const { return data + 2 * layer * plane_stride; }
  float* value(int64_t layer) const { return data + (2 * layer + 1) * plane_stride; }
};

// Neighbouring positions of one sequence, as a model reads them.
struct ContextView {
  ContextPlanes planes;
  int64_t first_row = 0;  // in the planes, of first_position
  int32_t first_position = 0;
  int64_t rows = 0;

  const float* key(int64_t layer, int64_t row_width) const {
    return planes.key(layer) + first_row * row_width;
  }
  const float* value(int64_t layer, int64_t row_width) const {
    return planes.value(layer) + first_row * row_width;
  }
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
// dropped when room is needed.
class ContextCache {
 public:
  // On the CPU, in memory of its own, reserved at once and touched only as rows are written. window >= 1
  // positions of `row_width` floats a layer and plane; no position reaches max_positions.
  ContextCache(int64_t layers, int64_t row_width, int32_t window, int32_t max_positions);
  // In rows [first_row, first_row + SharedCapacityOf(window, max_positions)) of planes that `device` holds
  // and that outlive it; rows that move are copied there.
  ContextCache(int64_t layers, int64_t row_width, int32_t window, int32_t max_positions,
               const ContextPlanes& planes, int64_t first_row, Device& device);

  // Rows a cache needs in a device's memory, all of it taken: a quarter more than the window, so that rows
  // move once for so many positions. A cache of its own has twice the window, since what is not touched costs
  // nothing.
  static int64_t SharedCapacityOf(int32_t window, int32_t max_positions);

  // Room for positions [first_position, first_position + rows), less those that no longer fit: the answer's
  // range may begin later or be empty. Row r of a layer's plane belongs to answer.first_position + r. Moving
  // rows on a device is enqueued and may fail.
  struct Slot {
    int32_t first_position = 0;
    int32_t rows = 0;
  };
  absl::StatusOr<Slot> Reserve(int32_t first_position, int32_t rows);
  // Whether Reserve would move no rows, so that it does not need the device.
  bool HasRoom(int32_t first_position, int32_t rows) const {
    return first_position + rows <= base_ + capacity_;
  }
  // After the rows of a slot were written in every layer, or before it where they are sure to be in time.
  void MarkWritten(Slot slot) { written_.Add(slot.first_position, slot.first_position + slot.rows); }

  float* key(int64_t layer, int32_t position) { return At(2 * layer, position); }
  float* value(int64_t layer, int32_t position) { return At(2 * layer + 1, position); }
  // Of a position in the planes, or -1 if it has no room any more.
  int64_t row(int32_t position) const { return position < base_ ? -1 : first_row_ + position - base_; }

  bool Covers(int32_t begin, int32_t end) const { return written_.Covers(begin, end); }
  // Covers(begin, end) must hold.
  ContextView View(int32_t begin, int32_t end) const;

  int32_t window() const { return window_; }
  int64_t capacity() const { return capacity_; }

 private:
  float* At(int64_t plane, int32_t position) {
    return planes_.data + plane * planes_.plane_stride + row(position) * row_width_;
  }
  absl::Status MoveBase(int32_t base);
  absl::Status MoveOnDevice(int64_t plane, int32_t base, int64_t rows);

  int64_t plane_count_;
  int64_t row_width_;
  int32_t window_;
  int64_t capacity_;  // rows of this sequence in a plane
  int32_t base_ = 0;  // position of the first row
  int32_t end_ = 0;   // one past the last position written or reserved
  PositionRanges written_;
  std::unique_ptr<float[]> memory_;  // of a cache of its own
  ContextPlanes planes_;
  int64_t first_row_ = 0;
  Device* device_ = nullptr;  // null: the host's memory
};

}  // namespace arborist::drafter
