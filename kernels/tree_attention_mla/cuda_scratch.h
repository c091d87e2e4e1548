#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "common/base/math.h"
#include "kernels/tree_attention_mla/tree_attention_mla.h"

namespace arborist::kernels {

// How the CUDA version lays out its working memory. A query is one head of one row: index row * heads + head.
struct CudaScratch {
  // Integers of the work list for each row, and before the first.
  static constexpr int64_t kListInts = 8;

  int64_t queries = 0;
  int64_t latent = 0;
  int64_t width = 0;
  int64_t rows = 0;
  int64_t parts = 0;  // a query's partial results: its splits, then the tail

  // Most splits of a row whose prefix has at most `pages` blocks.
  static constexpr int64_t MaxSplits(int64_t pages) {
    int64_t most = 0;
    // The number grows between the bounds where the split length changes, so their last members decide.
    for (const int64_t blocks : {std::min<int64_t>(pages, 32), std::min<int64_t>(pages, 512), pages}) {
      most = std::max(most, CeilDiv(blocks, CudaSplitBlocks(static_cast<int32_t>(blocks))));
    }
    return most;
  }

  static constexpr CudaScratch Of(int64_t rows, int64_t heads, int64_t latent, int64_t rope, int64_t pages) {
    return {.queries = rows * heads,
            .latent = latent,
            .width = latent + rope,
            .rows = rows,
            .parts = MaxSplits(pages) + 1};
  }

  // Each piece begins at a multiple of 256 bytes.
  constexpr int64_t acc_stride() const { return RoundUp(latent, 4); }
  constexpr int64_t acc_bytes() const { return RoundUp(queries * parts * acc_stride() * 4, 256); }
  constexpr int64_t max_sum_bytes() const { return RoundUp(queries * parts * 8, 256); }
  constexpr int64_t query_bytes() const { return RoundUp(queries * width * 2, 256); }
  constexpr int64_t list_bytes() const { return RoundUp((rows + 1) * kListInts * 4, 256); }

  static constexpr size_t Bytes(int64_t rows, int64_t heads, int64_t latent, int64_t rope, int64_t pages) {
    const CudaScratch s = Of(rows, heads, latent, rope, pages);
    return static_cast<size_t>(s.acc_bytes() + s.max_sum_bytes() + s.query_bytes() + s.list_bytes());
  }
};

}  // namespace arborist::kernels
