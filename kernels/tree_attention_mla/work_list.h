#pragma once

#include <cstdint>

#include "kernels/tree_attention_mla/cuda_problem.h"
#include "kernels/tree_attention_mla/cuda_scratch.h"

namespace arborist::kernels::cuda {

// Rows of one sequence that stand together, and the items of work they make: first for every split every tile
// of queries (so that tiles which read the same keys run side by side), then the tails, row by row. Splits
// are listed per length, as rows of one run may differ in it.
struct Run {
  int32_t first_row;
  int32_t rows;
  int32_t splits[3];  // of 4, 8 and 16 blocks
  int32_t tiles;
  int32_t items;
  int32_t offset;  // items of the runs before
};
static_assert(sizeof(Run) == CudaScratch::kListInts * sizeof(int32_t));

struct WorkList {
  int32_t ticket;  // the next item that nobody has taken
  int32_t items;
  int32_t runs;
  int32_t unused[5];
  Run run[1];  // [runs]; there is room for one a row
};
static_assert(offsetof(WorkList, run) == sizeof(Run));

constexpr int32_t SplitLength(int i) { return 4 << i; }

constexpr int32_t CeilDiv32(int32_t a, int32_t b) { return (a + b - 1) / b; }

}  // namespace arborist::kernels::cuda
