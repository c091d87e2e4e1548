#include "drafter/context_cache.h"

#include <algorithm>
#include <cstring>

#include "common/base/check.h"
#include "common/base/status_macros.h"

namespace arborist::drafter {

void PositionRanges::Add(int32_t begin, int32_t end) {
  if (begin >= end) {
    return;
  }
  const auto first =
      std::find_if(ranges_.begin(), ranges_.end(), [&](const Range& r) { return r.end >= begin; });
  auto last = first;
  for (; last != ranges_.end() && last->begin <= end; ++last) {
    begin = std::min(begin, last->begin);
    end = std::max(end, last->end);
  }
  ranges_.insert(ranges_.erase(first, last), Range{begin, end});
}

void PositionRanges::DropBelow(int32_t position) {
  std::erase_if(ranges_, [&](const Range& r) { return r.end <= position; });
  if (!ranges_.empty()) {
    ranges_.front().begin = std::max(ranges_.front().begin, position);
  }
}

bool PositionRanges::Covers(int32_t begin, int32_t end) const {
  return begin >= end || std::any_of(ranges_.begin(), ranges_.end(),
                                     [&](const Range& r) { return r.begin <= begin && end <= r.end; });
}

int64_t ContextCache::SharedCapacityOf(int32_t window, int32_t max_positions) {
  constexpr int64_t kLeastSlack = 64;
  return std::min<int64_t>(window + std::max<int64_t>(window / 4, kLeastSlack), max_positions);
}

ContextCache::ContextCache(int64_t layers, int64_t row_width, int32_t window, int32_t max_positions)
    : plane_count_(2 * layers),
      row_width_(row_width),
      window_(std::min(window, max_positions)),
      capacity_(std::min<int64_t>(2 * static_cast<int64_t>(window_), max_positions)) {
  Check(layers >= 1 && row_width >= 1 && window >= 1 && max_positions >= 1, "a cache has rows");
  memory_ = std::make_unique_for_overwrite<float[]>(plane_count_ * capacity_ * row_width_);
  planes_ = {.data = memory_.get(), .plane_stride = capacity_ * row_width_, .rows = capacity_};
}

ContextCache::ContextCache(int64_t layers, int64_t row_width, int32_t window, int32_t max_positions,
                           const ContextPlanes& planes, int64_t first_row, Device& device)
    : plane_count_(2 * layers),
      row_width_(row_width),
      window_(std::min(window, max_positions)),
      capacity_(SharedCapacityOf(window, max_positions)),
      planes_(planes),
      first_row_(first_row),
      device_(&device) {
  Check(first_row >= 0 && first_row + capacity_ <= planes.rows, "a cache lies within its planes");
}

absl::StatusOr<ContextCache::Slot> ContextCache::Reserve(int32_t first_position, int32_t rows) {
  const int32_t end = first_position + rows;
  if (!HasRoom(first_position, rows)) {
    RETURN_IF_ERROR(MoveBase(end - window_));
  }
  const int32_t begin = std::max(first_position, base_);
  if (begin >= end) {
    return Slot{base_, 0};
  }
  end_ = std::max(end_, end);
  return Slot{begin, end - begin};
}

absl::Status ContextCache::MoveBase(int32_t base) {
  const int64_t kept = std::max(end_ - base, 0);
  for (int64_t plane = 0; plane < plane_count_ && kept > 0; ++plane) {
    if (device_ == nullptr) {
      std::memmove(At(plane, base_), At(plane, base), kept * row_width_ * sizeof(float));
    } else {
      RETURN_IF_ERROR(MoveOnDevice(plane, base, kept));
    }
  }
  base_ = base;
  written_.DropBelow(base);
  return absl::OkStatus();
}

// A device's copies must not overlap: pieces as long as the way they go, from the front.
absl::Status ContextCache::MoveOnDevice(int64_t plane, int32_t base, int64_t rows) {
  const int64_t piece = base - base_;
  for (int64_t done = 0; done < rows; done += piece) {
    const int64_t count = std::min(piece, rows - done);
    RETURN_IF_ERROR(device_->Copy(At(plane, base_) + done * row_width_, At(plane, base) + done * row_width_,
                                  count * row_width_ * sizeof(float)));
  }
  return absl::OkStatus();
}

ContextView ContextCache::View(int32_t begin, int32_t end) const {
  Check(Covers(begin, end), "only written rows are read");
  return {.planes = planes_,
          .first_row = begin < end ? row(begin) : first_row_,
          .first_position = begin,
          .rows = end - begin};
}

}  // namespace arborist::drafter
