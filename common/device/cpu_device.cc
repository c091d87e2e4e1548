#include <unistd.h>

#include <cstdlib>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "common/device/device.h"

namespace arborist {
namespace {

constexpr size_t kAlignment = 256;

class CpuDevice final : public Device {
 public:
  CpuDevice(ThreadPool& threads, DeviceFault fault) : threads_(&threads), fault_(std::move(fault)) {}

  DeviceKind kind() const override { return DeviceKind::kCpu; }
  std::string name() const override { return "CPU"; }
  std::string architecture() const override { return "any"; }
  StreamView stream() const override { return {.threads = threads_, .cuda_stream = nullptr}; }
  size_t bytes_left() const override {
    return static_cast<size_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<size_t>(sysconf(_SC_PAGESIZE));
  }

  absl::StatusOr<DeviceMemory> Allocate(size_t bytes, absl::string_view what) override {
    const size_t size = (bytes + kAlignment) / kAlignment * kAlignment;
    void* data = fault_.FailsAllocation() ? nullptr : std::aligned_alloc(kAlignment, size);
    if (data == nullptr) {
      return absl::ResourceExhaustedError(
          absl::StrCat(what, ": ", bytes, " bytes, more than this machine has free"));
    }
    std::memset(data, 0, size);
    fault_has_memory_ |= fault_.WillTake(what);
    allocations_.push_back({std::string(what), bytes});
    return DeviceMemory(data, bytes, std::free);
  }
  absl::StatusOr<DeviceMemory> AllocateHost(size_t bytes, absl::string_view what) override {
    return Allocate(bytes, what);
  }
  absl::Status Copy(void* to, const void* from, size_t bytes) override {
    std::memcpy(to, from, bytes);
    return absl::OkStatus();
  }
  // Work is done when it is enqueued; only a planted fault shows here.
  absl::Status Synchronize() override {
    if (failure_.ok() && fault_.FailsLaunch()) {
      failure_ = absl::InternalError("device work: a planted launch error");
    }
    if (failure_.ok() && fault_.TakesMemory()) {
      failure_ = fault_has_memory_ ? absl::InternalError(absl::StrCat(
                                         "device work: a planted illegal access to ", fault_.memory()))
                                   : fault_.NoSuchMemory();
    }
    return failure_;
  }
  absl::StatusOr<std::unique_ptr<RecordedWork>> Record(absl::FunctionRef<absl::Status()>,
                                                       absl::string_view) override {
    return absl::UnimplementedError("the CPU runs work at once and records none");
  }

 private:
  ThreadPool* threads_;
  PlantedFault fault_;
  bool fault_has_memory_ = false;
  absl::Status failure_;
};

}  // namespace

std::unique_ptr<Device> OpenCpuDevice(ThreadPool& threads, DeviceFault fault) {
  return std::make_unique<CpuDevice>(threads, std::move(fault));
}

}  // namespace arborist
