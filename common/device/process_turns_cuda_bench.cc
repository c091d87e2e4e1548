// What it costs that two processes use a GPU by turns: the same short recorded work, by one process alone and
// by two that wait for each other, as a drafter and a verifier do with one sequence. Run it with and without
// MPS: without, the GPU changes between the processes' contexts for every turn.
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <memory>
#include <new>
#include <vector>

#include "common/base/status_macros.h"
#include "common/device/device.h"

namespace arborist {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kTurns = 1000;
constexpr int kKernels = 20;
constexpr size_t kCopiedBytes = 64;

// Between the processes.
struct Table {
  std::atomic<int> ready{0};
  std::atomic<int> turn{0};
  std::atomic<int> failed{0};
  double microseconds = 0;  // of a turn, median, as player 0 saw it
};

absl::Status Play(int player, int players, Table& table) {
  ASSIGN_OR_RETURN(const std::unique_ptr<Device> device, OpenCudaDevice({}));
  ASSIGN_OR_RETURN(const DeviceMemory there, device->Allocate(kCopiedBytes, "turns"));
  ASSIGN_OR_RETURN(const DeviceMemory here, device->AllocateHost(kCopiedBytes, "turns"));
  const auto copies = [&] {
    for (int i = 0; i < kKernels; ++i) {
      RETURN_IF_ERROR(device->Copy(there.data(), here.data(), kCopiedBytes));
    }
    return absl::OkStatus();
  };
  ASSIGN_OR_RETURN(const std::unique_ptr<RecordedWork> work, device->Record(copies, "turn"));
  RETURN_IF_ERROR(work->Start());
  RETURN_IF_ERROR(device->Synchronize());
  std::vector<double> times;
  for (table.ready.fetch_add(1); table.ready.load() < players && table.failed.load() == 0;) {
  }
  for (int i = 0; i < kTurns; ++i) {
    while (table.turn.load() % players != player) {
      if (table.failed.load() != 0) {
        return absl::OkStatus();  // the other says why
      }
    }
    const Clock::time_point begin = Clock::now();
    RETURN_IF_ERROR(work->Start());
    RETURN_IF_ERROR(device->Synchronize());
    times.push_back(std::chrono::duration<double, std::micro>(Clock::now() - begin).count());
    table.turn.fetch_add(1);
  }
  std::nth_element(times.begin(), times.begin() + kTurns / 2, times.end());
  if (player == 0) {
    table.microseconds = times[kTurns / 2];
  }
  return absl::OkStatus();
}

// CUDA does not survive a fork, so every process opens the device itself.
int Run(int players) {
  void* const shared =
      mmap(nullptr, sizeof(Table), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (shared == MAP_FAILED) {
    std::perror("mmap");
    return 1;
  }
  Table& table = *new (shared) Table;
  for (int player = 0; player < players; ++player) {
    if (fork() == 0) {
      const absl::Status status = Play(player, players, table);
      if (!status.ok()) {
        table.failed = 1;
        std::fprintf(stderr, "%s\n", status.ToString().c_str());
      }
      _exit(status.ok() ? 0 : 1);
    }
  }
  while (wait(nullptr) > 0) {
  }
  if (table.failed.load() == 0) {
    std::printf("%d process(es): %.1f us a turn of %d short kernels\n", players, table.microseconds,
                kKernels);
  }
  return table.failed.load();
}

}  // namespace
}  // namespace arborist

int main() { return arborist::Run(1) != 0 || arborist::Run(2) != 0 ? 1 : 0; }
