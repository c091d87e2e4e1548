#include "verifier/step_input.h"

#include <algorithm>
#include <vector>

#include "common/base/status_macros.h"
#include "kernels/tree_attention_mla/tree_attention_mla.h"
#include "verifier/block_layout.h"

namespace arborist::verifier {
namespace {

// Points `arrays` into a block at `base` and returns the block's bytes.
int64_t Place(const StepSize& size, std::byte* base, StepArrays& arrays) {
  BlockLayout layout(base);
  layout.Take(arrays.params, size.sequences);
  layout.Take(arrays.token, size.rows);
  for (int32_t** array : {&arrays.position, &arrays.sequence, &arrays.parent, &arrays.write_slot,
                          &arrays.prefix_blocks, &arrays.tail_count}) {
    layout.Take(*array, size.rows);
  }
  layout.Take(arrays.tail_slot, int64_t{size.rows} * kernels::kMaxTailKeys);
  layout.Take(arrays.page_table, int64_t{size.sequences} * size.pages_per_sequence);
  for (int32_t** array : {&arrays.logits_row, &arrays.noise_position, &arrays.params_index}) {
    layout.Take(*array, size.logits_rows);
  }
  layout.Take(arrays.tree_begin, size.trees + 1);
  layout.Take(arrays.live_rows, 1);
  return layout.bytes();
}

// The first `live` of `from`, then `padding` up to `size`.
template <typename T>
void Fill(const std::vector<T>& from, int64_t live, int64_t size, T padding, T* to) {
  std::fill_n(std::copy_n(from.data(), live, to), size - live, padding);
}

}  // namespace

StepContents ContentsOf(const StepBatch& batch) {
  const auto blocks = batch.prefix_blocks.begin();
  return {.rows = batch.rows,
          .logits_rows = static_cast<int>(batch.logits_row.size()),
          .sequences = batch.sequences,
          .pages = batch.rows == 0 ? 0 : *std::max_element(blocks, blocks + batch.rows)};
}

int64_t StepInput::Bytes(const StepCapacity& capacity) {
  StepArrays unused;
  return Place(LargestStep(capacity), nullptr, unused);
}

absl::StatusOr<StepInput> StepInput::Create(const StepCapacity& capacity, Device& device) {
  const auto bytes = static_cast<size_t>(Bytes(capacity));
  StepInput input(device);
  ASSIGN_OR_RETURN(input.host_block_, device.AllocateHost(bytes, "step input"));
  ASSIGN_OR_RETURN(input.device_block_, device.Allocate(bytes, "step input"));
  return input;
}

void StepInput::Pack(const StepSize& size, const StepBatch& batch,
                     std::span<const kernels::SamplingParams> sampling) {
  StepArrays to;
  Place(size, host_block_.As<std::byte>(), to);
  Fill(batch.token, batch.rows, size.rows, TokenId{0}, to.token);
  Fill(batch.position, batch.rows, size.rows, 0, to.position);
  Fill(batch.sequence, batch.rows, size.rows, 0, to.sequence);
  Fill(batch.parent, batch.rows, size.rows, -1, to.parent);
  Fill(batch.write_slot, batch.rows, size.rows, -1, to.write_slot);
  Fill(batch.prefix_blocks, batch.rows, size.rows, 0, to.prefix_blocks);
  Fill(batch.tail_count, batch.rows, size.rows, 0, to.tail_count);
  std::copy_n(batch.tail_slot.data(), int64_t{batch.rows} * kernels::kMaxTailKeys, to.tail_slot);
  for (int64_t sequence = 0; sequence < batch.sequences; ++sequence) {
    std::copy_n(batch.page_table.data() + sequence * batch.pages_per_sequence, size.pages_per_sequence,
                to.page_table + sequence * size.pages_per_sequence);
  }
  std::fill(std::copy(sampling.begin(), sampling.end(), to.params), to.params + size.sequences,
            kernels::SamplingParams{});
  const auto logits_rows = static_cast<int64_t>(batch.logits_row.size());
  Fill(batch.logits_row, logits_rows, size.logits_rows, -1, to.logits_row);
  std::fill_n(to.noise_position, size.logits_rows, 0);
  std::fill_n(to.params_index, size.logits_rows, 0);
  for (int64_t i = 0; i < logits_rows; ++i) {
    to.noise_position[i] = batch.position[batch.logits_row[i]] + 1;
    to.params_index[i] = batch.sequence[batch.logits_row[i]];
  }
  for (int tree = 0; tree <= size.trees; ++tree) {
    to.tree_begin[tree] = batch.first_row[std::min<size_t>(tree, sampling.size())];
  }
  *to.live_rows = batch.rows;
}

absl::Status StepInput::EnqueueCopy(const StepSize& size) {
  StepArrays unused;
  return device_->Copy(device_block_.data(), host_block_.data(),
                       static_cast<size_t>(Place(size, nullptr, unused)));
}

StepArrays StepInput::DeviceArrays(const StepSize& size) const {
  StepArrays arrays;
  Place(size, device_block_.As<std::byte>(), arrays);
  return arrays;
}

StepBatchView StepInput::View(const StepSize& size) const {
  const StepArrays arrays = DeviceArrays(size);
  return {.rows = size.rows,
          .sequences = size.sequences,
          .logits_rows = size.logits_rows,
          .pages_per_sequence = size.pages_per_sequence,
          .token = arrays.token,
          .position = arrays.position,
          .sequence = arrays.sequence,
          .parent = arrays.parent,
          .write_slot = arrays.write_slot,
          .prefix_blocks = arrays.prefix_blocks,
          .tail_slot = arrays.tail_slot,
          .tail_count = arrays.tail_count,
          .page_table = arrays.page_table,
          .logits_row = arrays.logits_row,
          .live_rows = arrays.live_rows};
}

}  // namespace arborist::verifier
