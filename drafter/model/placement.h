#pragma once

#include <cstddef>
#include <map>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/device/device.h"

namespace arborist::drafter {

// Where a device reads what the host holds: the host's memory itself on the CPU, a copy made once elsewhere.
// Copies live as long as the placement, host memory must live as long as whoever reads it on the CPU.
class Placement {
 public:
  explicit Placement(Device& device) : device_(&device) {}

  // The same pointer again gives the same copy. The copy is enqueued.
  absl::StatusOr<const void*> Place(const void* data, size_t bytes, absl::string_view what);

 private:
  Device* device_;
  std::map<const void*, DeviceMemory> copies_;
};

}  // namespace arborist::drafter
