#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "common/base/ids.h"
#include "common/threads/thread_pool.h"
#include "kernels/kernel_set.h"
#include "verifier/kv_planes.h"
#include "verifier/page_pool.h"
#include "verifier/prompt_log_probs.h"

namespace arborist::verifier {

// The paged cache: memory (planes) and who may use it (pages). A sequence appends by writing the slots of its
// own pages; committed positions lie at their logical rows, in order, so nothing is ever looked up.
class KvCache {
 public:
  // max_moves bounds one Compact, whose scratch for so many threads is allocated here; on a GPU it needs none
  // (threads = 0).
  KvCache(KvPlanes planes, int64_t max_moves, int threads);

  KvPlanes& planes() { return planes_; }
  PagePool& pool() { return pool_; }
  const PagePool& pool() const { return pool_; }

  // Moves rows of every plane as if all reads came before all writes; a negative slot is no move. The lists
  // lie in the device's memory. Longer lists than kernels::kMaxCompactMoves go in pieces, so a move must read
  // nothing that one of an earlier piece writes: accepted rows move towards the front of their tree.
  absl::Status Compact(const kernels::KernelSet& kernels, View1<const int32_t> from, View1<const int32_t> to,
                       StreamView stream);

  static int64_t PagesFor(int64_t rows);
  // Whole pages among so many rows.
  static int64_t WholePages(int64_t rows);
  // Check()s that no other sequence reads the pages of rows [first, first + rows), which are about to be
  // written.
  static void CheckWritable(const SequencePages& pages, int64_t first, int64_t rows);

 private:
  KvPlanes planes_;
  PagePool pool_;
  int64_t max_row_bytes_;
  std::vector<std::byte> scratch_;
};

// What one owner of a sequence leaves to the next: pages whose rows [0, computed) hold the K/V of `tokens`,
// and what is known of their log-probabilities.
struct KvInheritance {
  SequencePages pages;
  std::vector<TokenId> tokens;
  int32_t computed = 0;
  PromptLogProbs log_probs{};
};

// Length of the longest common prefix.
int32_t CommonTokens(std::span<const TokenId> a, std::span<const TokenId> b);

// Shrinks `from` to the pages of the longest common prefix with `tokens` and returns how many of its rows can
// be kept: at most tokens.size() - 1, since the last token is the next root and has no K/V yet; and whole
// pages only where the page of the next row is one that another sequence reads.
int32_t KeepCommonPrefix(std::span<const TokenId> tokens, KvInheritance& from);

}  // namespace arborist::verifier
