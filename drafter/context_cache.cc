#include "drafter/context_cache.h"

#include <algorithm>
#include <cstring>

#include "common/base/check.h"

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

ContextCache::ContextCache(int64_t layers, int64_t row_width, int32_t window, int32_t max_positions)
    : planes_(2 * layers),
      row_width_(row_width),
      window_(std::min(window, max_positions)),
      // Twice the window: rows move once every `window` positions.
      capacity_(std::min<int64_t>(2 * static_cast<int64_t>(window_), max_positions)) {
  Check(layers >= 1 && row_width >= 1 && window >= 1 && max_positions >= 1, "a cache has rows");
  memory_ = std::make_unique_for_overwrite<float[]>(planes_ * capacity_ * row_width_);
}

ContextCache::Slot ContextCache::Reserve(int32_t first_position, int32_t rows) {
  const int32_t end = first_position + rows;
  if (end > base_ + capacity_) {
    MoveBase(end - window_);
  }
  const int32_t begin = std::max(first_position, base_);
  if (begin >= end) {
    return {base_, 0};
  }
  end_ = std::max(end_, end);
  return {begin, end - begin};
}

void ContextCache::MoveBase(int32_t base) {
  const int64_t kept = std::max(end_ - base, 0);
  for (int64_t plane = 0; plane < planes_ && kept > 0; ++plane) {
    std::memmove(At(plane, base_), At(plane, base), kept * row_width_ * sizeof(float));
  }
  base_ = base;
  written_.DropBelow(base);
}

ContextView ContextCache::View(int32_t begin, int32_t end) const {
  Check(Covers(begin, end), "only written rows are read");
  const int64_t row = begin < end ? begin - base_ : 0;
  return {.data = memory_.get() + row * row_width_,
          .plane_stride = capacity_ * row_width_,
          .first_position = begin,
          .rows = end - begin};
}

}  // namespace arborist::drafter
