#include "verifier/step_batch.h"

#include <algorithm>
#include <cstddef>

#include "kernels/tree_attention_mla/tree_attention_mla.h"

namespace arborist::verifier {

void StepBatch::Reserve(int max_rows, int max_sequences, int max_pages_per_sequence) {
  const auto row_capacity = static_cast<size_t>(max_rows);
  const auto sequence_capacity = static_cast<size_t>(max_sequences);
  token.assign(row_capacity, TokenId{0});
  position.assign(row_capacity, 0);
  sequence.assign(row_capacity, 0);
  parent.assign(row_capacity, -1);
  write_slot.assign(row_capacity, 0);
  prefix_blocks.assign(row_capacity, 0);
  tail_slot.assign(row_capacity * kernels::kMaxTailKeys, 0);
  tail_count.assign(row_capacity, 0);
  first_row.assign(sequence_capacity + 1, 0);
  page_table.assign(sequence_capacity * static_cast<size_t>(max_pages_per_sequence), -1);
  pages_per_sequence = max_pages_per_sequence;
  logits_row.clear();
  logits_row.reserve(row_capacity);
  rows = 0;
  sequences = 0;
}

void StepBatch::Clear() {
  rows = 0;
  sequences = 0;
  first_row[0] = 0;
  logits_row.clear();
}

StepBatchView ViewOf(const StepBatch& batch) {
  return {.rows = batch.rows,
          .sequences = batch.sequences,
          .logits_rows = static_cast<int64_t>(batch.logits_row.size()),
          .pages_per_sequence = batch.pages_per_sequence,
          .token = batch.token.data(),
          .position = batch.position.data(),
          .sequence = batch.sequence.data(),
          .parent = batch.parent.data(),
          .write_slot = batch.write_slot.data(),
          .prefix_blocks = batch.prefix_blocks.data(),
          .tail_slot = batch.tail_slot.data(),
          .tail_count = batch.tail_count.data(),
          .page_table = batch.page_table.data(),
          .logits_row = batch.logits_row.data(),
          .live_rows = nullptr};
}

StepBatch CopyOf(const StepBatchView& view) {
  StepBatch batch;
  batch.Reserve(static_cast<int>(view.rows), static_cast<int>(view.sequences),
                static_cast<int>(view.pages_per_sequence));
  batch.rows = static_cast<int>(view.rows);
  batch.sequences = static_cast<int>(view.sequences);
  std::copy_n(view.token, view.rows, batch.token.begin());
  std::copy_n(view.position, view.rows, batch.position.begin());
  std::copy_n(view.sequence, view.rows, batch.sequence.begin());
  std::copy_n(view.parent, view.rows, batch.parent.begin());
  std::copy_n(view.write_slot, view.rows, batch.write_slot.begin());
  std::copy_n(view.prefix_blocks, view.rows, batch.prefix_blocks.begin());
  std::copy_n(view.tail_slot, view.rows * kernels::kMaxTailKeys, batch.tail_slot.begin());
  std::copy_n(view.tail_count, view.rows, batch.tail_count.begin());
  std::copy_n(view.page_table, view.sequences * view.pages_per_sequence, batch.page_table.begin());
  batch.logits_row.assign(view.logits_row, view.logits_row + view.logits_rows);
  for (int row = 0; row < batch.rows; ++row) {
    batch.first_row[batch.sequence[row] + 1] = row + 1;
  }
  return batch;
}

}  // namespace arborist::verifier
