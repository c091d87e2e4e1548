#pragma once

#include "absl/status/statusor.h"
#include "common/device/device.h"
#include "kernels/kernel_set.h"

namespace arborist::kernels {

// kExact: a row's result depends on that row alone. kFast: dense products may choose their algorithm by the
// number of rows; so a row's bits differ between steps of different sizes, and so may the text. CUDA only.
enum class Numerics { kExact, kFast };

// The column for a device. The CPU has one.
const KernelSet& KernelsFor(DeviceKind kind, Numerics numerics = Numerics::kExact);

}  // namespace arborist::kernels
