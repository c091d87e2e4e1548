#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "common/device/device.h"
#include "drafter/context_cache.h"

namespace arborist::drafter {

// The contexts of all sequences in a device's memory, taken at start: planes of `places` caches' rows each.
// One thread at a time.
class ContextPool {
 public:
  // As ContextCache takes them.
  struct Shape {
    int64_t layers = 0;
    int64_t row_width = 0;
    int32_t window = 0;
    int32_t max_positions = 0;
  };
  static absl::StatusOr<std::unique_ptr<ContextPool>> Create(const Shape& shape, int places, Device& device);

  // The first row of a free place; ResourceExhausted if all are taken.
  absl::StatusOr<int64_t> Take();
  void Return(int64_t first_row);

  const ContextPlanes& planes() const { return planes_; }

 private:
  DeviceMemory memory_;
  ContextPlanes planes_;
  int places_ = 0;
  std::vector<int64_t> free_;
};

}  // namespace arborist::drafter
