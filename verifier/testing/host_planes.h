#pragma once

#include <utility>

#include "common/base/check.h"
#include "common/device/device.h"
#include "verifier/kv_planes.h"

namespace arborist::verifier {

// Planes in the memory of the CPU, which frees itself without a device.
inline KvPlanes HostPlanes(const KvShape& shape) {
  ThreadPool threads(1);
  absl::StatusOr<KvPlanes> planes = KvPlanes::Create(shape, *OpenCpuDevice(threads));
  Check(planes.ok(), planes.status().ToString());
  return *std::move(planes);
}

}  // namespace arborist::verifier
