#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "common/tensor/view.h"
#include "common/threads/thread_pool.h"

namespace arborist::kernels {

// Rows of one page of the cache, and keys of one block of the exact rule: a full page of committed rows is
// one block.
inline constexpr int kPageRows = 64;
// Blocks of one split; a constant of numerics_version, so a split covers 1024 absolute positions.
inline constexpr int kSplitBlocks = 16;
// The same for CUDA, whose splits are shorter so that one sequence fills a GPU; a row's own prefix decides.
constexpr int32_t CudaSplitBlocks(int32_t prefix_blocks) {
  if (prefix_blocks <= 32) {
    return 4;
  }
  return prefix_blocks <= 512 ? 8 : 16;
}
// Most keys in a row's tail.
inline constexpr int kMaxTailKeys = 127;

// For a row at `position`, keys below 64 * PrefixBlocks(position) are reduced block by block, the
// other 64..127 (all `position + 1` of them while position < 127) are the tail. Every tree row lies in the
// tails of its descendants while depth <= 63.
constexpr int32_t PrefixBlocks(int32_t position) { return position < 63 ? 0 : (position - 63) / kPageRows; }

// Absorbed MLA under a tree mask. Key and value share one latent row: K = all `latent + rope` elements, V =
// the first `latent`. For row t and head h:
//   score[j] = scale * dot(query[t, h, :], cache[key j, :])    (dot of linear.h)
//   out[t, h, :] = sum_j softmax(score)[j] * cache[key j, 0:latent]
// The order is part of the contract (DESIGN 3, EXACT), so a row is a function of its query and its ordered
// keys alone:
//   a block (64 keys of one page, or the tail in chunks of 64 keys) gives (m = max score, l = sum exp(score -
//   m) in 16 lanes as in linear.h, acc[c] = sum in ascending key order of fma(exp(score - m), v[c], acc[c]));
//   blocks merge in ascending order inside a split, splits in ascending order, the tail's chunks (merged into
//   one) last: merge(A, B): m = max; a = exp(A.m - m), b = exp(B.m - m); l = fma(A.l, a, B.l*b); acc =
//   fma(A.acc, a, B.acc*b). out = acc / l.
// CUDA keeps the rule, not these bits: query and p rounded to bf16 where the cache is bf16, splits of
// CudaSplitBlocks(prefix_blocks[t]) blocks, the tail a split of its own, all parts joined in one fixed order.
// There too nothing but the row's query and ordered keys enters: no neighbour, row count or SM count.
// A row with tail_count 0 is padding: prefix_blocks 0, sequence anything in range, out zeros.
struct TreeAttentionMlaArgs {
  View3<const float> query;         // [rows, heads, latent + rope], rope applied
  const void* cache = nullptr;      // [slots, latent + rope] of one layer, 16-byte aligned
  DType cache_dtype = DType::kF32;  // kF32, or kBF16 (CUDA; reference)
  int64_t slots = 0;
  int64_t latent = 0;
  int64_t rope = 0;
  float scale = 0;
  View1<const int32_t> sequence;       // [rows] row of page_table, ascending (padding aside)
  View2<const int32_t> page_table;     // [sequences, pages]: physical page of logical page i; see PrefixSlot
  int32_t page_rows = kPageRows;       // slots of a page: kPageRows, or 1 (page_table is a table of slots)
  View1<const int32_t> prefix_blocks;  // [rows] blocks of 64 positions reduced as whole blocks
  View2<const int32_t>
      tail_slot;  // [rows, kMaxTailKeys] slots of the tail keys in position order, the row's own last
  View1<const int32_t> tail_count;  // [rows] 1..127; 0 = padding
  View3<float> out;                 // [rows, heads, latent]
  // CPU: >= TreeAttentionMlaScratchBytes(...), 64-byte aligned. CUDA: device memory, >=
  // TreeAttentionMlaCudaScratchBytes(...), 256-byte aligned; what it holds is of no account. Reference: none.
  View1<std::byte> scratch;

  // Where a committed position lies.
  constexpr int64_t PrefixSlot(int32_t of_sequence, int64_t prefix_position) const {
    return int64_t{page_table.row(of_sequence)[prefix_position / page_rows]} * page_rows +
           prefix_position % page_rows;
  }
  // Whole blocks that the table has room for.
  constexpr int64_t TableBlocks() const { return page_table.columns * page_rows / kPageRows; }
};

// Independent of rows, heads and context: working state of one tile of queries a thread.
size_t TreeAttentionMlaScratchBytes(int64_t latent, int threads);
// For calls of at most so many rows and pages of 64 (TableBlocks) a sequence: partial results of every split,
// the queries in bf16 and the list of work.
size_t TreeAttentionMlaCudaScratchBytes(int64_t rows, int64_t heads, int64_t latent, int64_t rope,
                                        int64_t max_pages);

// Sizes only: all that a backend can see whose arrays lie in device memory.
absl::Status ValidateTreeAttentionMlaShapes(const TreeAttentionMlaArgs& args);
// Sizes and the contents of the index arrays.
absl::Status ValidateTreeAttentionMla(const TreeAttentionMlaArgs& args);

namespace reference {
// Plain softmax attention in double, in no particular order: the meaning, not the bits.
absl::Status TreeAttentionMla(const TreeAttentionMlaArgs& args, StreamView stream);
}  // namespace reference
namespace cpu {
absl::Status TreeAttentionMla(const TreeAttentionMlaArgs& args, StreamView stream);
}
namespace cuda {
// Index arrays are not validated. A tail slot or page outside the cache reads slot 0 instead, a prefix longer
// than the page table is cut, a tail longer than kMaxTailKeys too.
absl::Status TreeAttentionMla(const TreeAttentionMlaArgs& args, StreamView stream);
}  // namespace cuda

}  // namespace arborist::kernels
