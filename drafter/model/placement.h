#pragma once

#include <cstddef>
#include <initializer_list>
#include <map>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/device/device.h"
#include "common/tensor/view.h"

namespace arborist::drafter {

// Where a device reads what the host holds: the host's memory itself on the CPU, a copy made once elsewhere.
// Copies live as long as the placement, host memory must live as long as whoever reads it on the CPU.
class Placement {
 public:
  explicit Placement(Device& device) : device_(&device) {}

  // The same pointer again gives the same copy. The copy is enqueued.
  absl::StatusOr<const void*> Place(const void* data, size_t bytes, absl::string_view what);
  // The rows of several matrices of one width and type in one, which is empty (no data) on the CPU: there
  // they stay where they are. Each of them becomes a part of it.
  absl::StatusOr<WeightView> Stack(std::initializer_list<WeightView*> matrices, absl::string_view what);

 private:
  Device* device_;
  std::map<const void*, DeviceMemory> copies_;
};

}  // namespace arborist::drafter
