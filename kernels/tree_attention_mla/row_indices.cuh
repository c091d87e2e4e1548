#pragma once

#include <cuda_runtime.h>

#include "kernels/tree_attention_mla/cuda_problem.h"
#include "kernels/tree_attention_mla/tensor_instructions.cuh"

namespace arborist::kernels::cuda {

// What a row's index arrays say is known only after the kernel before, but where they lie is known at once:
// they set out for the second cache while that kernel runs, for keys wait for tables, and tables for counts.
// A line that is still being written stays right there. Which table is the row's is a guess that fits one
// sequence, and rows of one sequence each.
__device__ inline void AskForIndices(const AttentionProblem& p, int32_t row) {
  constexpr int kLineInts = 32;
  constexpr int kMostLines = 16;  // of a page table: the first 512 pages
  const auto thread = static_cast<int>(threadIdx.x);
  const auto ask = [&](const int32_t* first, int32_t count, int line) {
    if (line * kLineInts < count) {
      PrefetchToL2(first + line * kLineInts);
    } else if (line * kLineInts < count + kLineInts) {
      PrefetchToL2(first + count - 1);  // where the first line was not whole
    }
  };
  if (thread < kMostLines) {
    const int32_t table = min(row, p.sequences - 1);
    const int32_t pages = p.blocks * (kPageRows / p.page_rows);
    if (table >= 0 && pages > 0) {
      ask(p.page_table + table * p.page_stride, pages, thread);
    }
  } else if (thread < 2 * kMostLines) {
    if (p.tail_columns > 0) {
      ask(p.tail_slot + row * p.tail_stride, min(p.tail_columns, kMaxTailKeys), thread - kMostLines);
    }
  } else if (thread == 2 * kMostLines) {
    PrefetchToL2(p.tail_count + row);
    PrefetchToL2(p.prefix_blocks + row);
    PrefetchToL2(p.sequence + row);
  }
}

}  // namespace arborist::kernels::cuda
