#pragma once

#include <cstdint>
#include <vector>

#include "common/base/ids.h"

namespace arborist::verifier {

// The only input of the target model's forward pass: one flat struct of arrays, sized once at start, for many
// sequences, prompt chunks and trees mixed. A prompt chunk is a chain, plain decoding a root-only tree.
//
// Rows of one sequence are neighbours, in node order (a parent comes before its child). A row's K/V is
// written to write_slot before attention reads; its ordered keys are the pages [0, prefix_blocks) of its
// sequence, whole, and then tail_slot[0 .. tail_count): prefix rows and tree rows come from this one slot
// map.
struct StepBatch {
  int rows = 0;
  int sequences = 0;

  std::vector<TokenId> token;          // [rows]
  std::vector<int32_t> position;       // [rows] absolute; depth counts, not the slot
  std::vector<int32_t> sequence;       // [rows] index into the sequence arrays, ascending
  std::vector<int32_t> parent;         // [rows] index inside the sequence's rows, -1 for its first row
  std::vector<int32_t> write_slot;     // [rows]
  std::vector<int32_t> prefix_blocks;  // [rows]
  std::vector<int32_t> tail_slot;      // [rows, kMaxTailKeys]
  std::vector<int32_t> tail_count;     // [rows]

  std::vector<int32_t> first_row;   // [sequences + 1]
  std::vector<int32_t> page_table;  // [sequences, pages_per_sequence], -1 where unused
  int pages_per_sequence = 0;

  // Rows whose logits are wanted, ascending: all rows of a tree, none of a prompt chunk.
  std::vector<int32_t> logits_row;  // [logits_rows]

  // Sizes every array for at most these many; nothing allocates afterwards.
  void Reserve(int max_rows, int max_sequences, int max_pages_per_sequence);
  void Clear();
};

// A StepBatch as the model reads it: arrays in the memory of the model's device. Where sizes are those of a
// recorded step, padding rows stand behind the real ones: token 0, position 0, sequence 0, write slot -1, no
// keys; padding logits rows are -1.
struct StepBatchView {
  int64_t rows = 0;
  int64_t sequences = 0;
  int64_t logits_rows = 0;
  int64_t pages_per_sequence = 0;

  const TokenId* token = nullptr;
  const int32_t* position = nullptr;
  const int32_t* sequence = nullptr;
  const int32_t* parent = nullptr;
  const int32_t* write_slot = nullptr;
  const int32_t* prefix_blocks = nullptr;
  const int32_t* tail_slot = nullptr;
  const int32_t* tail_count = nullptr;
  const int32_t* page_table = nullptr;
  const int32_t* logits_row = nullptr;
  const int32_t* live_rows = nullptr;  // [1] rows before the padding; null: all
};

// The batch where it lies, for a model on the CPU. Valid until the batch changes.
StepBatchView ViewOf(const StepBatch& batch);

// A batch of its own from a view on the CPU; first_row is made anew from the rows' sequences.
StepBatch CopyOf(const StepBatchView& view);

}  // namespace arborist::verifier
