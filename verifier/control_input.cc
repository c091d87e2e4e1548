#include "verifier/control_input.h"

#include <algorithm>

#include "common/base/status_macros.h"
#include "verifier/block_layout.h"

namespace arborist::verifier {
namespace {

size_t EntryBytes(int64_t entries) { return static_cast<size_t>(entries) * sizeof(kernels::LogitEntry); }

size_t MaskBytes(const ControlCapacity& capacity, int64_t masks) {
  return static_cast<size_t>(masks * capacity.mask_words) * sizeof(uint32_t);
}

}  // namespace

ControlBytes ControlInput::Bytes(const StepCapacity& capacity, int64_t vocabulary) {
  const ControlCapacity lists(capacity, vocabulary);
  ControlArrays unused;
  return {.rows = Place(LargestStep(capacity), nullptr, unused),
          .entries = static_cast<int64_t>(EntryBytes(lists.entries)),
          .masks = static_cast<int64_t>(MaskBytes(lists, lists.masks))};
}

absl::StatusOr<ControlInput> ControlInput::Create(const StepCapacity& capacity, int64_t vocabulary,
                                                  Device& device) {
  ControlInput input(ControlCapacity(capacity, vocabulary), device);
  const ControlBytes bytes = Bytes(capacity, vocabulary);
  const auto rows = static_cast<size_t>(bytes.rows);
  const auto entries = static_cast<size_t>(bytes.entries);
  const auto masks = static_cast<size_t>(bytes.masks);
  ASSIGN_OR_RETURN(input.host_rows_, device.AllocateHost(rows, "controls"));
  ASSIGN_OR_RETURN(input.device_rows_, device.Allocate(rows, "controls"));
  ASSIGN_OR_RETURN(input.host_entries_, device.AllocateHost(entries, "controls"));
  ASSIGN_OR_RETURN(input.device_entries_, device.Allocate(entries, "controls"));
  ASSIGN_OR_RETURN(input.host_masks_, device.AllocateHost(masks, "controls"));
  ASSIGN_OR_RETURN(input.device_masks_, device.Allocate(masks, "controls"));
  return input;
}

int64_t ControlInput::Place(const StepSize& size, std::byte* base, ControlArrays& arrays) {
  BlockLayout layout(base);
  layout.Take(arrays.sequence, size.trees);
  layout.Take(arrays.row, size.logits_rows);
  layout.Take(arrays.top, size.logits_rows);
  layout.Take(arrays.forced, size.logits_rows);
  layout.Take(arrays.top_count, size.logits_rows);
  return layout.bytes();
}

ControlArrays ControlInput::Arrays(const StepSize& size, const DeviceMemory& rows,
                                   const DeviceMemory& entries, const DeviceMemory& masks) const {
  ControlArrays arrays;
  Place(size, rows.As<std::byte>(), arrays);
  arrays.entry = entries.As<kernels::LogitEntry>();
  arrays.mask = masks.As<uint32_t>();
  return arrays;
}

void ControlInput::Pack(const StepSize& size, std::span<const StepTree> trees,
                        std::span<const StepChunk> chunks, const StepBatch& batch) {
  const ControlArrays to = Arrays(size, host_rows_, host_entries_, host_masks_);
  packed_ = lists_.Fill(trees, chunks, batch, to);
  std::fill(to.sequence + trees.size(), to.sequence + size.trees, kernels::SequenceControls{});
  const auto rows = static_cast<int64_t>(batch.logits_row.size());
  std::fill(to.row + rows, to.row + size.logits_rows, kernels::RowControls{});
  std::fill(to.top + rows, to.top + size.logits_rows, TopListParams(0));
  std::fill(to.forced + rows, to.forced + size.logits_rows, TokenId{-1});
  std::fill(to.top_count + rows, to.top_count + size.logits_rows, 0);
}

absl::Status ControlInput::EnqueueLists() {
  if (packed_.entries > 0) {
    RETURN_IF_ERROR(device_->Copy(device_entries_.data(), host_entries_.data(), EntryBytes(packed_.entries)));
  }
  return packed_.masks > 0
             ? device_->Copy(device_masks_.data(), host_masks_.data(), MaskBytes(capacity_, packed_.masks))
             : absl::OkStatus();
}

absl::Status ControlInput::EnqueueCopy(const StepSize& size) {
  ControlArrays unused;
  return device_->Copy(device_rows_.data(), host_rows_.data(),
                       static_cast<size_t>(Place(size, nullptr, unused)));
}

ControlArrays ControlInput::DeviceArrays(const StepSize& size) const {
  return Arrays(size, device_rows_, device_entries_, device_masks_);
}

}  // namespace arborist::verifier
