#include "verifier/kv_cache.h"

#include <algorithm>

#include "common/base/check.h"
#include "common/base/math.h"
#include "kernels/tree_attention_mla/tree_attention_mla.h"

namespace arborist::verifier {

KvCache::KvCache(int layers, int64_t pages, int64_t latent_row, int64_t feature_row, int64_t max_moves,
                 int threads)
    : planes_(layers, pages, latent_row, feature_row), pool_(pages) {
  const auto row_bytes = planes_.plane_row_bytes();
  scratch_.resize(
      static_cast<size_t>(max_moves * *std::max_element(row_bytes.begin(), row_bytes.end()) * threads));
}

absl::Status KvCache::Compact(const kernels::KernelSet& kernels, std::span<const int32_t> from,
                              std::span<const int32_t> to, StreamView stream) {
  if (from.empty()) {
    return absl::OkStatus();
  }
  const auto planes = planes_.plane_data();
  const auto row_bytes = planes_.plane_row_bytes();
  return kernels.kv_compact({.plane = {planes.data(), static_cast<int64_t>(planes.size())},
                             .row_bytes = {row_bytes.data(), static_cast<int64_t>(row_bytes.size())},
                             .max_row_bytes = *std::max_element(row_bytes.begin(), row_bytes.end()),
                             .slots = planes_.slots(),
                             .from = {from.data(), static_cast<int64_t>(from.size())},
                             .to = {to.data(), static_cast<int64_t>(to.size())},
                             .scratch = {scratch_.data(), static_cast<int64_t>(scratch_.size())}},
                            stream);
}

int64_t KvCache::PagesFor(int64_t rows) { return CeilDiv(rows, kernels::kPageRows); }

int32_t KeepCommonPrefix(std::span<const TokenId> tokens, KvInheritance& from) {
  Check(!tokens.empty(), "a sequence has a root");
  const auto mismatch =
      std::mismatch(tokens.begin(), tokens.end(), from.tokens.begin(), from.tokens.end()).first;
  const auto common = static_cast<int32_t>(mismatch - tokens.begin());
  const int32_t kept = std::min({common, from.computed, static_cast<int32_t>(tokens.size()) - 1});
  Check(from.pages.Resize(std::min(from.pages.count(), KvCache::PagesFor(kept))), "shrinking takes no page");
  return kept;
}

}  // namespace arborist::verifier
