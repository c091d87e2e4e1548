#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "arborist/v1/config.pb.h"
#include "common/device/device.h"
#include "common/rpc/flags.h"

namespace arborist {

// "cpu" or "cuda", as the flag --device says it.
absl::StatusOr<v1::Device> DeviceOfFlag(const std::string& name);

// Checks every field, and that without CUDA none of a GPU's is set but its fault; whether the GPU is there is
// OpenDevice's question.
absl::StatusOr<DeviceOptions> ReadDeviceConfig(v1::Device device, const v1::GpuConfig& gpu);

// Says in the log of a process that its device is to fail on purpose, if it is.
void WarnOfPlantedFault(const std::string& process, const DeviceOptions& options);

// --device, --cuda-device, --gpu-memory, --gpu-trace and --gpu-launch-by-launch, into a service's config,
// which outlives the flags.
template <typename Message>
void AddDeviceFlags(FlagSet& flags, Message& config) {
  flags.Add("device", "cpu or cuda", [&config](const std::string& name) {
    const absl::StatusOr<v1::Device> device = DeviceOfFlag(name);
    config.set_device(device.value_or(v1::DEVICE_UNSPECIFIED));
    return device.status();
  });
  flags.AddInteger("cuda-device", "index of the GPU", 0, 255,
                   [&config](int64_t v) { config.mutable_gpu()->set_index(static_cast<int32_t>(v)); });
  flags.AddInteger("gpu-memory", "bytes of the GPU's memory to take at most", 1, INT64_MAX,
                   [&config](int64_t v) { config.mutable_gpu()->set_memory_bytes(v); });
  flags.Add("gpu-trace", "file for the begin and end of the GPU's work", [&config](const std::string& path) {
    config.mutable_gpu()->set_trace_path(path);
    return absl::OkStatus();
  });
  flags.AddSwitch("gpu-launch-by-launch", "wait for every kernel, so that an error names it; slow",
                  [&config] { config.mutable_gpu()->set_launch_by_launch(true); });
}

}  // namespace arborist
