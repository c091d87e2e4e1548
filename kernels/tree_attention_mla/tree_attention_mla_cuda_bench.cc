// Trees of q nodes behind prefixes of L positions for B sequences, as verify steps have them. The floor is
// the larger of reading the keys once and the products at the best rate a GEMM reaches here (780 TFLOP/s,
// wgmma; mma.sync peaks at 537).
#include <algorithm>
#include <cstdio>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_format.h"
#include "common/base/check.h"
#include "kernels/bench/cuda_bench.h"
#include "kernels/bench/output_check.h"
#include "kernels/tree_attention_mla/public_figures.h"
#include "kernels/tree_attention_mla/tree_attention_mla.h"

namespace arborist::kernels::bench {
namespace {

constexpr double kFloorFlops = 780e12;
// Keys of 64 sequences of 131,072 positions and a tree; all shapes share them.
constexpr int64_t kPoolSlots = 64 * (131072 + 2 * kPageRows);
// Of 64 trees of 65 nodes with 128 heads.
constexpr int64_t kMostQueries = int64_t{64} * 65 * 128;

struct Shape {
  int64_t heads, latent, rope, nodes, prefix, batch;
  int64_t width() const { return latent + rope; }
  int64_t rows() const { return nodes * batch; }
  int64_t pages() const { return (prefix + nodes + kPageRows - 1) / kPageRows; }
  size_t ScratchBytes() const {
    return TreeAttentionMlaCudaScratchBytes(rows(), heads, latent, rope, pages());
  }
  double Flops() const {
    return 2.0 * static_cast<double>(width() + latent) * heads * rows() * (prefix + nodes);
  }
  double KeyBytes() const { return 2.0 * static_cast<double>(batch * (prefix + nodes) * width()); }
  double Bytes() const { return KeyBytes() + 2.0 * static_cast<double>(rows() * heads * (width() + latent)); }
};

// Memory that all shapes share. Working memory grows up to `most_scratch`.
struct Pool {
  explicit Pool(CudaBench& b)
      : cache(b.Memory(kPoolSlots * 576 * 2)),
        query(static_cast<float*>(b.Memory(kMostQueries * 576 * 4))),
        out(static_cast<float*>(b.Memory(kMostQueries * 512 * 4, 0xff))),
        most_scratch(b.FreeBytes() / 10 * 9),
        scratch(static_cast<std::byte*>(b.Memory(most_scratch, 0xff))) {}
  void* cache;
  float* query;
  float* out;
  size_t most_scratch;
  std::byte* scratch;
};

// Page tables over pages that no other set has, and random trees.
TreeAttentionMlaArgs InputSet(CudaBench& b, const Pool& pool, const Shape& s,
                              std::vector<int32_t>& free_pages, std::mt19937& random, int64_t query_offset) {
  std::vector<int32_t> page_table, sequence, prefix_blocks, tail_slot, tail_count;
  for (int64_t n = 0; n < s.batch; ++n) {
    const auto table = static_cast<int64_t>(page_table.size());
    page_table.insert(page_table.end(), free_pages.end() - s.pages(), free_pages.end());
    free_pages.resize(free_pages.size() - s.pages());
    const auto slot = [&](int64_t index) {
      return static_cast<int32_t>(page_table[table + index / kPageRows] * kPageRows + index % kPageRows);
    };
    std::vector<std::vector<int32_t>> path;  // of nodes, from the root
    for (int64_t node = 0; node < s.nodes; ++node) {
      path.push_back(node == 0 ? std::vector<int32_t>{} : path[random() % node]);
      path.back().push_back(static_cast<int32_t>(node));
      const auto position = static_cast<int32_t>(s.prefix + path.back().size() - 1);
      const int32_t blocks = PrefixBlocks(position);
      sequence.push_back(static_cast<int32_t>(n));
      prefix_blocks.push_back(blocks);
      const size_t first = tail_slot.size();
      for (int64_t key = int64_t{blocks} * kPageRows; key < s.prefix; ++key) {
        tail_slot.push_back(slot(key));
      }
      for (const int32_t ancestor : path.back()) {
        tail_slot.push_back(slot(s.prefix + ancestor));
      }
      tail_count.push_back(static_cast<int32_t>(tail_slot.size() - first));
      tail_slot.resize(first + kMaxTailKeys, -1);
    }
  }
  const int64_t rows = s.rows();
  return {.query = {pool.query + query_offset, rows, s.heads, s.width()},
          .cache = pool.cache,
          .cache_dtype = DType::kBF16,
          .slots = kPoolSlots,
          .latent = s.latent,
          .rope = s.rope,
          .scale = 1.0f / 24,
          .sequence = {b.Upload(sequence), rows},
          .page_table = {b.Upload(page_table), s.batch, s.pages(), s.pages()},
          .page_rows = kPageRows,
          .prefix_blocks = {b.Upload(prefix_blocks), rows},
          .tail_slot = {b.Upload(tail_slot), rows, kMaxTailKeys, kMaxTailKeys},
          .tail_count = {b.Upload(tail_count), rows},
          .out = {pool.out, rows, s.heads, s.latent},
          .scratch = {pool.scratch, static_cast<int64_t>(s.ScratchBytes())}};
}

// One head of the last row that the last launch left, against plain softmax attention over the keys of its
// sequence, which are copied page by page.
void CheckLastRow(const Pool& pool, const Shape& s, const TreeAttentionMlaArgs& args) {
  const int64_t row = s.rows() - 1;
  const std::vector<float> query = Download(args.query.at(row, s.heads - 1), s.width());
  const int32_t sequence = 0;
  const std::vector<int32_t> pages = Download(args.page_table.row(s.batch - 1), s.pages());
  const std::vector<int32_t> prefix_blocks = Download(args.prefix_blocks.data + row, 1);
  std::vector<int32_t> tail_slot = Download(args.tail_slot.row(row), kMaxTailKeys);
  const std::vector<int32_t> tail_count = Download(args.tail_count.data + row, 1);
  const int64_t page_values = kPageRows * s.width();
  std::vector<uint16_t> keys(s.pages() * page_values);
  std::vector<int32_t> own_pages(pages.size());
  for (int64_t i = 0; i < s.pages(); ++i) {
    own_pages[i] = static_cast<int32_t>(i);
    DownloadBytes(static_cast<const uint16_t*>(pool.cache) + pages[i] * page_values,
                  keys.data() + i * page_values, page_values * 2);
  }
  for (int32_t& slot : tail_slot) {
    if (slot >= 0) {
      const auto page = std::find(pages.begin(), pages.end(), slot / kPageRows) - pages.begin();
      slot = static_cast<int32_t>(page * kPageRows + slot % kPageRows);
    }
  }
  std::vector<float> want(s.latent);
  TreeAttentionMlaArgs host = args;
  host.query = {query.data(), 1, 1, s.width()};
  host.cache = keys.data();
  host.slots = s.pages() * kPageRows;
  host.sequence = {&sequence, 1};
  host.page_table = {own_pages.data(), 1, s.pages(), s.pages()};
  host.prefix_blocks = {prefix_blocks.data(), 1};
  host.tail_slot = {tail_slot.data(), 1, kMaxTailKeys, kMaxTailKeys};
  host.tail_count = {tail_count.data(), 1};
  host.out = {want.data(), 1, 1, s.latent};
  Check(reference::TreeAttentionMla(host, {}).ok(), "the oracle runs");
  ExpectNear("tree_attention_mla", Download(args.out.at(row, s.heads - 1), s.latent), want, 2e-2f);
}

double Measure(CudaBench& b, const Pool& pool, const Shape& s) {
  std::mt19937 random(1);
  std::vector<int32_t> free_pages(kPoolSlots / kPageRows);
  for (size_t i = 0; i < free_pages.size(); ++i) {
    free_pages[i] = static_cast<int32_t>(i);
  }
  std::shuffle(free_pages.begin(), free_pages.end(), random);
  const int64_t queries = s.rows() * s.heads * s.width();
  const int64_t most = std::min(kPoolSlots / kPageRows / (s.pages() * s.batch), kMostQueries * 576 / queries);
  const int sets =
      static_cast<int>(std::clamp<int64_t>(most, 1, std::min(CudaBench::SetsFor(s.KeyBytes()), 256)));
  std::vector<TreeAttentionMlaArgs> args;
  for (int i = 0; i < sets; ++i) {
    args.push_back(InputSet(b, pool, s, free_pages, random, queries * i));
  }
  const double microseconds = b.MedianMicroseconds(
      sets, [&](int i) { return cuda::TreeAttentionMla(args[static_cast<size_t>(i)], b.stream()); });
  CheckLastRow(pool, s, args.back());
  return microseconds;
}

// --filter picks by kernel and shape.
bool Run(CudaBench& b, const Pool& pool, const Shape& s, double goal) {
  const std::string kernel = absl::StrFormat("tree_attention_mla_%dx%d", s.latent, s.rope);
  const std::string shape =
      absl::StrFormat("heads %d nodes %d prefix %d batch %d", s.heads, s.nodes, s.prefix, s.batch);
  if (!b.Wanted(kernel + " " + shape)) {
    return false;
  }
  if (s.ScratchBytes() > pool.most_scratch) {
    std::printf("%s %s: left out, its working memory is %zu bytes, there are %zu\n", kernel.c_str(),
                shape.c_str(), s.ScratchBytes(), pool.most_scratch);
    return false;
  }
  b.Report({.kernel = kernel,
            .shape = shape,
            .microseconds = Measure(b, pool, s),
            .floor_microseconds = std::max(s.Bytes() / kFloorBandwidth, s.Flops() / kFloorFlops) * 1e6,
            .goal_microseconds = goal});
  return true;
}

}  // namespace
}  // namespace arborist::kernels::bench

int main(int argc, char** argv) {
  using namespace arborist::kernels::bench;
  CudaBench bench(argc, argv);
  if (!bench.has_device()) {
    return 0;
  }
  const Pool pool(bench);
  for (const PublicFigure& f : kPublicFigures) {
    if (Run(bench, pool, {f.heads, 512, 64, f.nodes, f.prefix, f.batch},
            // Against the public mma.sync version for 100 KB, and ten times faster than a tree mask in
            // Triton.
            f.flashinfer_100kb > 0                              ? f.flashinfer_100kb
            : f.nodes == 33 && f.prefix == 4096 && f.batch == 1 ? f.triton / 10
                                                                : 0)) {
      std::printf("%28s FlashMLA %.1f, FlashInfer mma.sync %.1f, for 100 KB %.1f, Triton extend %.0f\n",
                  "public:", f.flash_mla, f.flashinfer, f.flashinfer_100kb, f.triton);
    }
  }
  for (const int64_t batch : {1, 8, 32}) {
    for (const int64_t nodes : {1, 9, 17, 33, 65}) {
      Run(bench, pool, {8, 128, 32, nodes, 512, batch}, 0);
    }
  }
}
