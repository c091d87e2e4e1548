#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/ids.h"
#include "common/device/device.h"
#include "kernels/sample_target/sample_target.h"
#include "verifier/step_batch.h"
#include "verifier/step_size.h"

namespace arborist::verifier {

// All that a step reads, as pointers into one block.
struct StepArrays {
  kernels::SamplingParams* params = nullptr;  // [sequences]
  TokenId* token = nullptr;                   // [rows], as all down to tail_slot
  int32_t* position = nullptr;
  int32_t* sequence = nullptr;
  int32_t* parent = nullptr;
  int32_t* write_slot = nullptr;
  int32_t* prefix_blocks = nullptr;
  int32_t* tail_count = nullptr;
  int32_t* tail_slot = nullptr;       // [rows, kMaxTailKeys]
  int32_t* page_table = nullptr;      // [sequences, pages_per_sequence]
  int32_t* logits_row = nullptr;      // [logits_rows]
  int32_t* noise_position = nullptr;  // [logits_rows] of the token being chosen
  int32_t* params_index = nullptr;    // [logits_rows]
  int32_t* tree_begin = nullptr;      // [trees + 1]
  int32_t* live_rows = nullptr;       // [1]
};

// What of a batch decides about its size.
StepContents ContentsOf(const StepBatch& batch);

// The way of a step's input to a GPU: packed in page-locked memory, padded to a size, brought over by one
// copy.
class StepInput {
 public:
  // Of one block of Create's: one on the device, one on the host.
  static int64_t Bytes(const StepCapacity& capacity);
  // For every size within the capacity. The device outlives it.
  static absl::StatusOr<StepInput> Create(const StepCapacity& capacity, Device& device);

  // Writes the batch, with padding behind it. Its first sampling.size() sequences are trees. The copy of the
  // step before has run.
  void Pack(const StepSize& size, const StepBatch& batch, std::span<const kernels::SamplingParams> sampling);
  // Enqueues the copy of what is packed, or will be when a recorded copy starts.
  absl::Status EnqueueCopy(const StepSize& size);

  // Where it lies on the device.
  StepArrays DeviceArrays(const StepSize& size) const;
  StepBatchView View(const StepSize& size) const;

 private:
  explicit StepInput(Device& device) : device_(&device) {}

  Device* device_;
  DeviceMemory host_block_;
  DeviceMemory device_block_;
};

}  // namespace arborist::verifier
