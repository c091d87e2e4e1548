#pragma once

#include <cstdint>

#include "kernels/tree_attention_mla/cuda_problem.h"
#include "kernels/tree_attention_mla/cuda_scratch.h"

namespace arborist::kernels::cuda {

// Rows of one sequence that stand together, and the items of work they make: first for every split every tile
// of queries (so that tiles which read the same keys run side by side), then the tails. Splits
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
  int32_t ticket;  // items taken besides the first of each block
  int32_t items;
  int32_t runs;
  int32_t unused[5];
  Run run[1];  // [runs]; there is room for one a row
};
static_assert(offsetof(WorkList, run) == sizeof(Run));

constexpr int32_t SplitLength(int i) { return 4 << i; }

// One item of work; split_blocks 0 = tails.
struct Item {
  int32_t first_row;
  int32_t rows;   // whose tails
  int64_t query;  // the first
  int32_t queries;
  int32_t tile_queries;  // that there is room for
  int32_t split_blocks;
  int32_t split;
};

constexpr int32_t CeilDiv32(int32_t a, int32_t b) { return (a + b - 1) / b; }

constexpr int32_t TailItems(const AttentionProblem& p, int32_t rows) {
  return CeilDiv32(rows, p.rows_per_tail) * CeilDiv32(p.heads, p.queries_per_tail);
}

// Item `index` of a run.
constexpr Item MakeItem(const AttentionProblem& p, const Run& run, int32_t index) {
  for (int i = 0; i < 3; ++i) {
    const int32_t items = run.splits[i] * run.tiles;
    if (index < items) {
      const int32_t first = index % run.tiles * p.queries_per_tile;
      const int32_t left = run.rows * p.heads - first;
      return {.first_row = run.first_row,
              .rows = run.rows,
              .query = int64_t{run.first_row} * p.heads + first,
              .queries = left < p.queries_per_tile ? left : p.queries_per_tile,
              .tile_queries = p.queries_per_tile,
              .split_blocks = SplitLength(i),
              .split = index / run.tiles};
    }
    index -= items;
  }
  // Several rows, or a piece of one row's heads.
  const int32_t pieces = CeilDiv32(p.heads, p.queries_per_tail);
  const int32_t first_row = index / pieces * p.rows_per_tail;
  const int32_t rows = run.rows - first_row < p.rows_per_tail ? run.rows - first_row : p.rows_per_tail;
  const int32_t first = index % pieces * p.queries_per_tail;
  const int32_t left = rows * p.heads - first;
  return {.first_row = run.first_row + first_row,
          .rows = rows,
          .query = int64_t{run.first_row + first_row} * p.heads + first,
          .queries = left < p.queries_per_tail ? left : p.queries_per_tail,
          .tile_queries = p.queries_per_tail,
          .split_blocks = 0,
          .split = 0};
}

}  // namespace arborist::kernels::cuda
