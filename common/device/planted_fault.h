#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace arborist {

// Test hook: how a device shall fail.
struct DeviceFault {
  enum class Kind { kNone, kOutOfMemory, kLaunchError, kIllegalAccess };
  Kind kind = Kind::kNone;
  int64_t allocation = 1;      // kOutOfMemory: which call of Allocate, from 1
  std::string trigger_path{};  // the others: once this file is there
  std::string memory{};        // kIllegalAccess: the memory (by its name in Allocate) that kernels lose
};

// Says when. Each failure happens once.
class PlantedFault {
 public:
  explicit PlantedFault(DeviceFault fault) : fault_(std::move(fault)) {}

  // One more call of Allocate.
  bool FailsAllocation();
  // Work begins, or is waited for.
  bool FailsLaunch() { return Triggered(DeviceFault::Kind::kLaunchError); }
  bool TakesMemory() { return Triggered(DeviceFault::Kind::kIllegalAccess); }

  // Whether memory of this name is what kernels will lose.
  bool WillTake(absl::string_view what) const {
    return fault_.kind == DeviceFault::Kind::kIllegalAccess && what == fault_.memory;
  }
  const std::string& memory() const { return fault_.memory; }
  // In place of the illegal access, when no memory of that name was allocated.
  absl::Status NoSuchMemory() const;

 private:
  bool Triggered(DeviceFault::Kind kind);

  const DeviceFault fault_;
  int64_t allocations_ = 0;
  bool happened_ = false;
};

}  // namespace arborist
