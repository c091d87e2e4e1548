#include "drafter/context_pool.h"

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace arborist::drafter {

absl::StatusOr<std::unique_ptr<ContextPool>> ContextPool::Create(const Shape& shape, int places,
                                                                 Device& device) {
  const int64_t capacity = ContextCache::SharedCapacityOf(shape.window, shape.max_positions);
  auto pool = std::make_unique<ContextPool>();
  pool->places_ = places;
  pool->planes_.rows = places * capacity;
  pool->planes_.plane_stride = pool->planes_.rows * shape.row_width;
  const int64_t floats = 2 * shape.layers * pool->planes_.plane_stride;
  ASSIGN_OR_RETURN(pool->memory_,
                   device.Allocate(static_cast<size_t>(floats) * sizeof(float),
                                   absl::StrCat("contexts of ", places, " sequences (max_sequences)")));
  pool->planes_.data = pool->memory_.As<float>();
  for (int i = places - 1; i >= 0; --i) {
    pool->free_.push_back(i * capacity);
  }
  return pool;
}

absl::StatusOr<int64_t> ContextPool::Take() {
  if (free_.empty()) {
    return absl::ResourceExhaustedError(
        absl::StrCat("sequences=", places_ + 1, ", expected at most max_sequences=", places_));
  }
  const int64_t first_row = free_.back();
  free_.pop_back();
  return first_row;
}

void ContextPool::Return(int64_t first_row) { free_.push_back(first_row); }

}  // namespace arborist::drafter
