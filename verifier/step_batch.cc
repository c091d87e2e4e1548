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

}  // namespace arborist::verifier
