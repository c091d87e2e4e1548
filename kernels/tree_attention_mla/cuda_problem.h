#pragma once

#include <cstdint>

#include "kernels/tree_attention_mla/tree_attention_mla.h"

namespace arborist::kernels::cuda {

// One call as the CUDA kernels see it: the arguments, and the scratch cut into its pieces (cuda_scratch.h).
// A query is one head of one row: index row * heads + head. Its partial results are those of its splits in
// ascending order, then that of its tail.
struct AttentionProblem {
  const float* query;
  const void* cache;
  int64_t slots;
  int32_t rows;
  int32_t heads;
  int32_t latent;
  int32_t width;
  float scale_log2;  // scores in units of log2, so that exp2 does
  const int32_t* sequence;
  const int32_t* page_table;
  const int32_t* prefix_blocks;
  const int32_t* tail_slot;
  const int32_t* tail_count;
  int32_t sequences;
  int32_t page_rows;
  int32_t blocks;  // that the page table has room for
  int64_t page_stride;
  int64_t tail_stride;
  int32_t tail_columns;
  float* out;

  int32_t parts;             // partial results that a query has room for
  int32_t acc_stride;        // floats
  float* acc;                // [queries, parts, acc_stride] sum of p * value, its columns as PartColumn says
  float* max_sum;            // [queries, parts, 2] m (log2 units) and sum of p
  uint16_t* query_bf16;      // [queries, width], in the order of fragments (work_list_cuda.cu)
  int32_t* list;             // the work list (work_list.h)
  int32_t queries_per_tile;  // of the tensor-core kernel
  int32_t queries_per_tail;
  int32_t rows_per_tail;
  bool packed;  // the order of columns of a partial result

  // Index arrays are not trusted: what they say is brought into range.
  constexpr int32_t TailCount(int32_t row) const {
    const int32_t most = tail_columns < kMaxTailKeys ? tail_columns : kMaxTailKeys;
    const int32_t count = tail_count[row];
    return count < 0 ? 0 : count < most ? count : most;
  }
  constexpr int32_t Blocks(int32_t row) const {
    const int32_t of_row = prefix_blocks[row];
    return of_row < 0 ? 0 : of_row < blocks ? of_row : blocks;
  }
  constexpr int32_t Sequence(int32_t row) const {
    const int32_t s = sequence[row];
    return s >= 0 && s < sequences ? s : 0;
  }
  // Where a committed position lies; position < Blocks(any row) * 64.
  constexpr int64_t PrefixSlot(int32_t of_sequence, int32_t position) const {
    const int32_t page = page_table[of_sequence * page_stride + position / page_rows];
    const int64_t slot = int64_t{page} * page_rows + position % page_rows;
    return slot >= 0 && slot < slots ? slot : 0;
  }
  constexpr int64_t TailSlot(int32_t row, int32_t key) const {
    const int32_t slot = tail_slot[row * tail_stride + key];
    return slot >= 0 && slot < slots ? slot : 0;
  }
  constexpr int64_t Part(int64_t of_query, int32_t index) const { return of_query * parts + index; }
};

// A thread of the tensor-core kernels has columns r, r + 8, r + 16 and r + 24 of thirty-two, r < 8. In the
// packed order they stand together, as the thread stores them. Which column stands at `place` + i; place is a
// multiple of 4, i < 4.
constexpr int32_t PartColumn(bool packed, int32_t place, int32_t i) {
  return packed ? place / 32 * 32 + place % 32 / 4 + 8 * i : place + i;
}

constexpr int32_t Splits(int32_t blocks) {
  const int32_t length = CudaSplitBlocks(blocks);
  return (blocks + length - 1) / length;
}

// Kernels in launch order; each is enqueued on `stream` (a cudaStream_t).
absl::Status LaunchWorkList(const AttentionProblem& problem, void* stream);
// bf16 caches of the shapes that have a tensor-core version; launches the work list too.
bool HasTensorAttention(const AttentionProblem& problem, DType cache_dtype);
absl::Status LaunchTensorAttention(const AttentionProblem& problem, void* stream);
// The same for few rows (row_attention.cuh), without a work list. Both join the parts too.
absl::Status LaunchRowAttention(const AttentionProblem& problem, void* stream);
absl::Status LaunchGeneralAttention(const AttentionProblem& problem, DType cache_dtype, void* stream);
absl::Status LaunchJoinParts(const AttentionProblem& problem, void* stream);

}  // namespace arborist::kernels::cuda
