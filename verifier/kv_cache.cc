#include "verifier/kv_cache.h"

#include <algorithm>
#include <utility>

#include "common/base/check.h"
#include "common/base/math.h"
#include "common/base/status_macros.h"
#include "kernels/tree_attention_mla/tree_attention_mla.h"

namespace arborist::verifier {

KvCache::KvCache(KvPlanes planes, int64_t max_moves, int threads)
    : planes_(std::move(planes)),
      pool_(planes_.pages()),
      max_row_bytes_(*std::max_element(planes_.plane_row_bytes().begin(), planes_.plane_row_bytes().end())),
      scratch_(static_cast<size_t>(max_moves * max_row_bytes_ * threads)) {}

absl::Status KvCache::Compact(const kernels::KernelSet& kernels, View1<const int32_t> from,
                              View1<const int32_t> to, StreamView stream) {
  for (int64_t first = 0; first < from.size; first += kernels::kMaxCompactMoves) {
    const int64_t count = std::min(kernels::kMaxCompactMoves, from.size - first);
    RETURN_IF_ERROR(kernels.kv_compact({.plane = planes_.plane_table(),
                                        .row_bytes = planes_.row_bytes_table(),
                                        .max_row_bytes = max_row_bytes_,
                                        .slots = planes_.slots(),
                                        .from = {from.data + first, count},
                                        .to = {to.data + first, count},
                                        .scratch = {scratch_.data(), static_cast<int64_t>(scratch_.size())}},
                                       stream));
  }
  return absl::OkStatus();
}

int64_t KvCache::PagesFor(int64_t rows) { return CeilDiv(rows, kernels::kPageRows); }

int64_t KvCache::WholePages(int64_t rows) { return rows / kernels::kPageRows; }

void KvCache::CheckWritable(const SequencePages& pages, int64_t first, int64_t rows) {
  for (int64_t page = WholePages(first); page < PagesFor(first + rows); ++page) {
    Check(pages.OwnsAlone(page), "no row is written that another sequence reads");
  }
}

int32_t CommonTokens(std::span<const TokenId> a, std::span<const TokenId> b) {
  return static_cast<int32_t>(std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin());
}

int32_t KeepCommonPrefix(std::span<const TokenId> tokens, KvInheritance& from) {
  Check(!tokens.empty(), "a sequence has a root");
  int32_t kept =
      std::min({CommonTokens(tokens, from.tokens), from.computed, static_cast<int32_t>(tokens.size()) - 1});
  const int64_t whole = KvCache::WholePages(kept);
  if (whole < KvCache::PagesFor(kept) && !from.pages.OwnsAlone(whole)) {
    kept = static_cast<int32_t>(whole * kernels::kPageRows);
  }
  Check(from.pages.Resize(std::min(from.pages.count(), KvCache::PagesFor(kept))), "shrinking takes no page");
  return kept;
}

}  // namespace arborist::verifier
