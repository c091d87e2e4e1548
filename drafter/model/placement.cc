#include "drafter/model/placement.h"

#include <utility>

#include "common/base/status_macros.h"

namespace arborist::drafter {

absl::StatusOr<const void*> Placement::Place(const void* data, size_t bytes, absl::string_view what) {
  if (device_->kind() == DeviceKind::kCpu) {
    return data;
  }
  const auto there = copies_.find(data);
  if (there != copies_.end() && there->second.bytes() >= bytes) {
    return there->second.data();
  }
  ASSIGN_OR_RETURN(DeviceMemory memory, device_->Allocate(bytes, what));
  RETURN_IF_ERROR(device_->Copy(memory.data(), data, bytes));
  const void* copy = memory.data();
  copies_.insert_or_assign(data, std::move(memory));
  return copy;
}

}  // namespace arborist::drafter
