#include "common/rpc/device_config.h"

#include <cstdint>
#include <cstdio>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/rpc/rpc_config.h"
#include "common/rpc/status_bridge.h"

namespace arborist {
namespace {

absl::StatusOr<DeviceFault> ReadFault(const v1::DeviceFault& in) {
  DeviceFault out;
  switch (in.kind()) {
    case v1::DEVICE_FAULT_KIND_UNSPECIFIED:
      if (in.allocation() != 0 || !in.trigger_path().empty() || !in.memory().empty()) {
        return FieldError("gpu.fault.kind", "unset", "a DeviceFaultKind beside the other fields");
      }
      return out;
    case v1::DEVICE_FAULT_KIND_OUT_OF_MEMORY:
      out.kind = DeviceFault::Kind::kOutOfMemory;
      break;
    case v1::DEVICE_FAULT_KIND_LAUNCH_ERROR:
      out.kind = DeviceFault::Kind::kLaunchError;
      break;
    case v1::DEVICE_FAULT_KIND_ILLEGAL_ACCESS:
      out.kind = DeviceFault::Kind::kIllegalAccess;
      break;
    default:
      return FieldError("gpu.fault.kind", absl::StrCat(static_cast<int>(in.kind())), "a DeviceFaultKind");
  }
  ASSIGN_OR_RETURN(out.allocation, ValueOr("gpu.fault.allocation", in.allocation(), 1, 1, INT64_MAX));
  out.trigger_path = in.trigger_path();
  if (out.kind != DeviceFault::Kind::kOutOfMemory && out.trigger_path.empty()) {
    return FieldError("gpu.fault.trigger_path", "", "a file to wait for");
  }
  if (!out.trigger_path.empty() && std::filesystem::exists(out.trigger_path)) {
    return FieldError("gpu.fault.trigger_path", out.trigger_path, "a file that is not there yet");
  }
  out.memory = in.memory();
  if (out.kind == DeviceFault::Kind::kIllegalAccess && out.memory.empty()) {
    return FieldError("gpu.fault.memory", "", "a name of the memory table");
  }
  return out;
}

// What only a GPU has is refused without one rather than ignored; a planted fault is for both.
absl::Status CheckNoGpuField(const v1::GpuConfig& gpu) {
  const auto refused = [](const std::string& field, const std::string& value) {
    return FieldError(field, value, "it only with device CUDA (flag --device cuda)");
  };
  if (gpu.index() != 0) {
    return refused("gpu.index", absl::StrCat(gpu.index()));
  }
  if (gpu.memory_bytes() != 0) {
    return refused("gpu.memory_bytes", absl::StrCat(gpu.memory_bytes()));
  }
  if (gpu.memory_fraction() != 0) {
    return refused("gpu.memory_fraction", absl::StrCat(gpu.memory_fraction()));
  }
  if (!gpu.trace_path().empty()) {
    return refused("gpu.trace_path", gpu.trace_path());
  }
  if (gpu.launch_by_launch()) {
    return refused("gpu.launch_by_launch", "true");
  }
  return absl::OkStatus();
}

}  // namespace

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
  if (options.kind == DeviceKind::kCpu) {
    RETURN_IF_ERROR(CheckNoGpuField(gpu));
  }
  options.cuda = {.index = gpu.index(),
                  .memory_limit = static_cast<size_t>(gpu.memory_bytes()),
                  .memory_fraction = gpu.memory_fraction(),
                  .trace_path = gpu.trace_path(),
                  .launch_by_launch = gpu.launch_by_launch()};
  ASSIGN_OR_RETURN(options.fault, ReadFault(gpu.fault()));
  return options;
}

void WarnOfPlantedFault(const std::string& process, const DeviceOptions& options) {
  if (options.fault.kind != DeviceFault::Kind::kNone) {
    std::fprintf(stderr,
                 "%s: the device will FAIL ON PURPOSE (gpu.fault in the config), which only tests want\n",
                 process.c_str());
  }
}

}  // namespace arborist
