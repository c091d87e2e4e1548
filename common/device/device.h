#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/device/planted_fault.h"
#include "common/tensor/view.h"
#include "common/threads/thread_pool.h"

namespace arborist {

enum class DeviceKind { kCpu, kCuda };

// A block of a device's memory (or of page-locked host memory); frees itself. The device outlives it.
class DeviceMemory {
 public:
  using Free = void (*)(void* data);

  DeviceMemory() = default;
  DeviceMemory(void* data, size_t bytes, Free free) : data_(data), bytes_(bytes), free_(free) {}
  DeviceMemory(DeviceMemory&& other) noexcept { *this = std::move(other); }
  DeviceMemory& operator=(DeviceMemory&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    std::swap(free_, other.free_);
    return *this;
  }
  ~DeviceMemory() {
    if (data_ != nullptr) {
      free_(data_);
    }
  }

  void* data() const { return data_; }
  size_t bytes() const { return bytes_; }
  template <typename T>
  T* As() const {
    return static_cast<T*>(data_);
  }

 private:
  void* data_ = nullptr;
  size_t bytes_ = 0;
  Free free_ = nullptr;
};

// Work recorded once and started many times. On the CPU it is run anew each time.
class RecordedWork {
 public:
  virtual ~RecordedWork() = default;
  // Enqueues all of it on the device's stream.
  virtual absl::Status Start() = 0;
};

// Where a process computes: its memory, its one stream, and recorded work. Everything enqueued runs in order.
// One thread at a time.
class Device {
 public:
  // One line of the memory table that a process prints at start.
  struct Allocation {
    std::string what;
    size_t bytes = 0;
  };

  virtual ~Device() = default;
  virtual DeviceKind kind() const = 0;
  virtual std::string name() const = 0;
  // What decides about the bits of a result: "any" on the CPU, "sm_90" and so on.
  virtual std::string architecture() const = 0;
  virtual StreamView stream() const = 0;
  // Of the device's memory, for this process: what Allocate can still give.
  virtual size_t bytes_left() const = 0;

  // At least 256-byte aligned, zero-filled. More than the device or the limit holds is ResourceExhausted and
  // names `what`, the bytes wanted and those left.
  virtual absl::StatusOr<DeviceMemory> Allocate(size_t bytes, absl::string_view what) = 0;
  // Host memory that the device copies from and to without a detour.
  virtual absl::StatusOr<DeviceMemory> AllocateHost(size_t bytes, absl::string_view what) = 0;

  // Enqueued; either side may be the host's. Host memory must stay as it is until the copy has run.
  virtual absl::Status Copy(void* to, const void* from, size_t bytes) = 0;
  // Waits until everything enqueued is done. An error that the device reported meanwhile is Internal and
  // names the part of the recorded work and its kernels (see Mark); the device is unusable from then on:
  // every later call says the same.
  virtual absl::Status Synchronize() = 0;
  // Calls `work` once, which only enqueues on stream(), and keeps what it enqueued.
  virtual absl::StatusOr<std::unique_ptr<RecordedWork>> Record(absl::FunctionRef<absl::Status()> work,
                                                               absl::string_view what) = 0;

  // While work is recorded: what follows is its part of this name, up to the next mark. It costs half a
  // microsecond or so, and tells in which part a fault was: Synchronize's error names it and its kernels.
  virtual absl::Status Mark(absl::string_view) { return absl::OkStatus(); }
  // To find one kernel that fails: every launch is waited for, so its error names it, and nothing is
  // recorded.
  virtual bool launch_by_launch() const { return false; }

  // Runs `work` and lists under `what` the memory that the driver took of the device for it, beside what was
  // allocated here: recorded work, kernels that were loaded. It counts as this process's, up to what is left
  // of its share. Other processes that start at the same time blur the figure, so nothing is refused. The CPU
  // has none.
  virtual absl::Status Measure(absl::FunctionRef<absl::Status()> work, absl::string_view) { return work(); }
  // Lines under the memory table: what is measured and not this process's alone. May be empty.
  virtual std::string MemoryNote() const { return ""; }

  const std::vector<Allocation>& allocations() const { return allocations_; }

 protected:
  std::vector<Allocation> allocations_;
};

// `threads` outlives the device. Recorded work cannot be kept on the CPU: Record is Unimplemented there.
std::unique_ptr<Device> OpenCpuDevice(ThreadPool& threads, DeviceFault fault = {});

struct CudaDeviceOptions {
  int index = 0;
  // Bytes that this process may take of the device, 0 = see memory_fraction. Two processes may share a
  // device.
  size_t memory_limit = 0;
  // The same as a part of the device's whole memory, in (0, 1]; 0 = all that is free.
  double memory_fraction = 0;
  // Not empty: a WorkTrace of the recorded work goes there. Costs some microseconds each time.
  std::string trace_path{};
  // See Device. Many times slower.
  bool launch_by_launch = false;
};

// FailedPrecondition, in one line, without a usable GPU or in a build without CUDA.
absl::StatusOr<std::unique_ptr<Device>> OpenCudaDevice(const CudaDeviceOptions& options,
                                                       DeviceFault fault = {});

// As a config names it.
struct DeviceOptions {
  DeviceKind kind = DeviceKind::kCpu;
  CudaDeviceOptions cuda;
  DeviceFault fault;
};
absl::StatusOr<std::unique_ptr<Device>> OpenDevice(const DeviceOptions& options, ThreadPool& threads);

// How long a thread that feeds a device may look for its next work before it sleeps: a GPU leaves cores to
// the host. 0 on the CPU, and on a machine with few cores.
std::chrono::microseconds SpinBesideDevice(DeviceKind kind);

// What a process prints at start: a line for each name, the bytes taken under it, and the sum.
std::string MemoryTable(const Device& device);

}  // namespace arborist
