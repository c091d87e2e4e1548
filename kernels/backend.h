#pragma once

#include "absl/status/statusor.h"
#include "common/device/device.h"
#include "kernels/kernel_set.h"

namespace arborist::kernels {

// The column for a device.
const KernelSet& KernelsFor(DeviceKind kind);

}  // namespace arborist::kernels
