#include "common/device/planted_fault.h"

#include <unistd.h>

#include "absl/strings/str_cat.h"

namespace arborist {

bool PlantedFault::FailsAllocation() {
  return fault_.kind == DeviceFault::Kind::kOutOfMemory && ++allocations_ == fault_.allocation;
}

absl::Status PlantedFault::NoSuchMemory() const {
  return absl::InvalidArgumentError(
      absl::StrCat("gpu.fault.memory=", fault_.memory, ", expected a name of the memory table"));
}

bool PlantedFault::Triggered(DeviceFault::Kind kind) {
  if (fault_.kind != kind || happened_) {
    return false;
  }
  happened_ = access(fault_.trigger_path.c_str(), F_OK) == 0;
  return happened_;
}

}  // namespace arborist
