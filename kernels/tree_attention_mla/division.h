#pragma once

#include <compare>
#include <cstdint>

namespace arborist::kernels {

// What the host knows of a call on the tensor cores.
struct CallExtent {
  int64_t rows = 0;
  int64_t heads = 0;
  int64_t sequences = 0;  // of the page table
  int64_t blocks = 0;     // of a sequence, that the page table has room for
  int64_t parts = 0;      // partial results that a query has room for
};

// How a call is divided among blocks; no bit depends on it.
struct Division {
  bool by_rows = false;  // row_attention.cuh; else the list of work, with tiles of so many queries
  int tile_queries = 0;
  int tail_queries = 0;

  auto operator<=>(const Division&) const = default;
};

Division DivisionOf(const CallExtent& call, int processors);

}  // namespace arborist::kernels
