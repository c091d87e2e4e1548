#include "common/device/planted_fault.h"

#include <unistd.h>

namespace arborist {

bool PlantedFault::FailsAllocation() {
  return fault_.kind == DeviceFault::Kind::kOutOfMemory && ++allocations_ == fault_.allocation;
}

bool PlantedFault::Triggered(DeviceFault::Kind kind) {
  if (fault_.kind != kind || happened_) {
    return false;
  }
  happened_ = access(fault_.trigger_path.c_str(), F_OK) == 0;
  return happened_;
}

}  // namespace arborist
