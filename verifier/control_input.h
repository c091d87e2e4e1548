#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/device/device.h"
#include "verifier/control_lists.h"
#include "verifier/step_batch.h"
#include "verifier/step_runner.h"
#include "verifier/step_size.h"

namespace arborist::verifier {

// Of ControlInput's blocks, of which there is one each on the device and on the host.
struct ControlBytes {
  int64_t rows = 0;
  int64_t entries = 0;
  int64_t masks = 0;
};

// The way of a controlled step's lists to a GPU. What there is of each row lies in one block, padded to the
// step's size, whose copy can be recorded; entries and masks are copied beforehand, as many as there are.
class ControlInput {
 public:
  static ControlBytes Bytes(const StepCapacity& capacity, int64_t vocabulary);
  // For every size within the capacity. The device outlives it.
  static absl::StatusOr<ControlInput> Create(const StepCapacity& capacity, int64_t vocabulary,
                                             Device& device);

  // Writes the lists of a step, which is `batch` as FillStep made it, with padding behind them. The copies of
  // the step before have run.
  void Pack(const StepSize& size, std::span<const StepTree> trees, std::span<const StepChunk> chunks,
            const StepBatch& batch);
  // Enqueues the copies of the entries and masks that are packed.
  absl::Status EnqueueLists();
  // Enqueues the copy of the rest, of what is packed or will be when a recorded copy starts.
  absl::Status EnqueueCopy(const StepSize& size);

  // Where all of it lies on the device; entries and masks up to their capacity.
  ControlArrays DeviceArrays(const StepSize& size) const;
  const ControlCapacity& capacity() const { return capacity_; }

 private:
  ControlInput(const ControlCapacity& capacity, Device& device)
      : device_(&device), capacity_(capacity), lists_(capacity) {}

  // Points into blocks of host or device.
  static int64_t Place(const StepSize& size, std::byte* base, ControlArrays& arrays);
  ControlArrays Arrays(const StepSize& size, const DeviceMemory& rows, const DeviceMemory& entries,
                       const DeviceMemory& masks) const;

  Device* device_;
  ControlCapacity capacity_;
  ControlLists lists_;
  ControlSizes packed_;
  DeviceMemory host_rows_, host_entries_, host_masks_;
  DeviceMemory device_rows_, device_entries_, device_masks_;
};

}  // namespace arborist::verifier
