#include <algorithm>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/device/device.h"

namespace arborist {
namespace {

// Longer than a round of a drafter or a step of a verifier takes, as a rule.
constexpr std::chrono::microseconds kSpin{2000};
// Three processes and gRPC's threads want to run beside the threads that look.
constexpr unsigned kCoresForSpinning = 8;

}  // namespace

absl::StatusOr<std::unique_ptr<Device>> OpenDevice(const DeviceOptions& options, ThreadPool& threads) {
  if (options.kind == DeviceKind::kCuda) {
    return OpenCudaDevice(options.cuda, options.fault);
  }
  return OpenCpuDevice(threads, options.fault);
}

std::chrono::microseconds SpinBesideDevice(DeviceKind kind) {
  return kind == DeviceKind::kCuda && std::thread::hardware_concurrency() >= kCoresForSpinning
             ? kSpin
             : std::chrono::microseconds(0);
}

std::string MemoryTable(const Device& device) {
  std::vector<Device::Allocation> lines;
  size_t sum = 0;
  for (const Device::Allocation& allocation : device.allocations()) {
    const auto same = std::find_if(lines.begin(), lines.end(),
                                   [&](const auto& line) { return line.what == allocation.what; });
    if (same != lines.end()) {
      same->bytes += allocation.bytes;
    } else {
      lines.push_back(allocation);
    }
    sum += allocation.bytes;
  }
  const auto mib = [](size_t bytes) { return static_cast<double>(bytes) / (1 << 20); };
  std::string table = absl::StrCat("memory on ", device.name(), ":\n");
  for (const Device::Allocation& line : lines) {
    absl::StrAppendFormat(&table, "  %-36s %12.3f MiB\n", line.what, mib(line.bytes));
  }
  absl::StrAppendFormat(&table, "  %-36s %12.3f MiB\n", "sum", mib(sum));
  return table + device.MemoryNote();
}

}  // namespace arborist
