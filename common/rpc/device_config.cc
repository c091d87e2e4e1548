#include "common/rpc/device_config.h"

#include <cstdint>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/rpc/rpc_config.h"
#include "common/rpc/status_bridge.h"

namespace arborist {

absl::StatusOr<v1::Device> DeviceOfFlag(const std::string& name) {
  if (name != "cpu" && name != "cuda") {
    return FieldError("--device", name, "cpu or cuda");
  }
  return name == "cuda" ? v1::DEVICE_CUDA : v1::DEVICE_CPU;
}

absl::StatusOr<DeviceOptions> ReadDeviceConfig(v1::Device device, const v1::GpuConfig& gpu) {
  DeviceOptions options;
  switch (device) {
    case v1::DEVICE_UNSPECIFIED:
    case v1::DEVICE_CPU:
      break;
    case v1::DEVICE_CUDA:
      options.kind = DeviceKind::kCuda;
      break;
    default:
      return FieldError("device", absl::StrCat(static_cast<int>(device)), "CPU or CUDA");
  }
  RETURN_IF_ERROR(CheckRange("gpu.index", gpu.index(), 0, 255));
  RETURN_IF_ERROR(CheckRange("gpu.memory_bytes", gpu.memory_bytes(), 0, INT64_MAX));
  if (!(gpu.memory_fraction() >= 0 && gpu.memory_fraction() <= 1)) {
    return FieldError("gpu.memory_fraction", absl::StrCat(gpu.memory_fraction()), "a value in [0, 1]");
  }
  if (gpu.memory_bytes() > 0 && gpu.memory_fraction() > 0) {
    return FieldError("gpu.memory_fraction", absl::StrCat(gpu.memory_fraction()), "0 beside memory_bytes");
  }
  options.cuda = {.index = gpu.index(),
                  .memory_limit = static_cast<size_t>(gpu.memory_bytes()),
                  .memory_fraction = gpu.memory_fraction(),
                  .trace_path = gpu.trace_path()};
  return options;
}

}  // namespace arborist
