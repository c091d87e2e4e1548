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

}  // namespace arborist::verifier
