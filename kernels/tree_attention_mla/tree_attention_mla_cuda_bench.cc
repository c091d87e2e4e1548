// Trees of q nodes behind prefixes of L positions for B sequences, as verify steps have them. The floor is
// the larger of reading the keys once and the products at the best rate a GEMM reaches here (780 TFLOP/s,
// wgmma; mma.sync peaks at 537). Calls have the sizes of the steps that a service records: rows padded, page
// tables with more room (table_bounds.h). --tables=exact: of each shape's own size; --tables=largest: as if
// there were but one size of tables, for all the context and all the sequences of a service.
#include <algorithm>
#include <cstdio>
#include <iterator>
#include <numeric>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/str_format.h"
#include "common/base/check.h"
#include "common/base/math.h"
#include "kernels/bench/cuda_bench.h"
#include "kernels/bench/output_check.h"
#include "kernels/tree_attention_mla/public_figures.h"
#include "kernels/tree_attention_mla/table_bounds.h"
#include "kernels/tree_attention_mla/tree_attention_mla.h"

namespace arborist::kernels::bench {
namespace {

constexpr double kFloorFlops = 780e12;
// Keys of 64 sequences of 131,072 positions and a tree; all shapes share them.
constexpr int64_t kPoolSlots = 64 * (131072 + 2 * kPageRows);
// Of 64 trees of 65 nodes with 128 heads, padded.
constexpr int64_t kMostQueries = int64_t{17} * 256 * 128;
// Of the service: 32,768 positions and a tree, or as many as the shape has.
constexpr int64_t kServiceSequences = 64;
constexpr int64_t kServicePages = 516;

// As verifier/step_size.cc pads steps of trees alone.
int64_t RowsOfStep(int64_t rows) {
  constexpr int64_t kBounds[] = {1, 2, 4, 9, 17, 33, 65, 129, 192, 256, 320, 384, 448};
  const int64_t* bound = std::lower_bound(std::begin(kBounds), std::end(kBounds), rows);
  return bound != std::end(kBounds) ? *bound : RoundUp(rows, 256);
}

enum class Tables { kService, kExact, kLargest };

// Of a call.
struct CallSize {
  int64_t rows = 0;
  int64_t sequences = 0;
  int64_t pages = 0;
};

struct Shape {
  int64_t heads, latent, rope, nodes, prefix, batch;
  int64_t width() const { return latent + rope; }
  int64_t rows() const { return nodes * batch; }
  int64_t pages() const { return (prefix + nodes + kPageRows - 1) / kPageRows; }
  CallSize Call(Tables tables) const {
    const int32_t blocks = PrefixBlocks(static_cast<int32_t>(prefix + nodes - 1));
    if (tables == Tables::kExact) {
      return {rows(), batch, std::max(blocks, 1)};
    }
    const int64_t step_rows = RowsOfStep(rows());
    const int64_t most_pages = std::max(kServicePages, pages());
    if (tables == Tables::kLargest) {
      return {step_rows, std::min(step_rows, kServiceSequences), most_pages};
    }
    const auto smallest = [](const std::vector<int>& bounds, int64_t value) {
      return int64_t{*std::lower_bound(bounds.begin(), bounds.end(), value)};
    };
    const auto bounded_rows = static_cast<int>(step_rows);
    return {step_rows, smallest(SequenceBounds(bounded_rows, kServiceSequences), batch),
            smallest(PageBounds(bounded_rows, static_cast<int>(most_pages)), blocks)};
  }
  size_t ScratchBytes(const CallSize& call) const {
    return TreeAttentionMlaCudaScratchBytes(call.rows, heads, latent, rope, call.pages);
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

// All pages of the cache in random order.
class FreePages {
 public:
  explicit FreePages(std::mt19937& random) : pages_(kPoolSlots / kPageRows) {
    std::iota(pages_.begin(), pages_.end(), 0);
    std::shuffle(pages_.begin(), pages_.end(), random);
  }
  std::span<const int32_t> Take(int64_t count) {
    taken_ += count;
    return Last(count);
  }
  // Of those taken.
  std::span<const int32_t> Last(int64_t count) const {
    return std::span(pages_).subspan(taken_ - count, count);
  }

 private:
  std::vector<int32_t> pages_;
  int64_t taken_ = 0;
};

// Page tables over pages that no other set has, and random trees.
TreeAttentionMlaArgs InputSet(CudaBench& b, const Pool& pool, const Shape& s, const CallSize& call,
                              FreePages& free_pages, std::mt19937& random, int64_t query_offset) {
  std::vector<int32_t> page_table(call.sequences * call.pages, -1);
  std::vector<int32_t> sequence, prefix_blocks, tail_slot, tail_count;
  for (int64_t n = 0; n < s.batch; ++n) {
    const std::span<const int32_t> own = free_pages.Take(s.pages());
    std::copy_n(own.begin(), std::min(s.pages(), call.pages), page_table.begin() + n * call.pages);
    const auto slot = [&](int64_t index) {
      return static_cast<int32_t>(own[index / kPageRows] * kPageRows + index % kPageRows);
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
  sequence.resize(call.rows, 0);
  prefix_blocks.resize(call.rows, 0);
  tail_slot.resize(call.rows * kMaxTailKeys, -1);
  tail_count.resize(call.rows, 0);
  const int64_t rows = call.rows;
  return {.query = {pool.query + query_offset, rows, s.heads, s.width()},
          .cache = pool.cache,
          .cache_dtype = DType::kBF16,
          .slots = kPoolSlots,
          .latent = s.latent,
          .rope = s.rope,
          .scale = 1.0f / 24,
          .sequence = {b.Upload(sequence), rows},
          .page_table = {b.Upload(page_table), call.sequences, call.pages, call.pages},
          .page_rows = kPageRows,
          .prefix_blocks = {b.Upload(prefix_blocks), rows},
          .tail_slot = {b.Upload(tail_slot), rows, kMaxTailKeys, kMaxTailKeys},
          .tail_count = {b.Upload(tail_count), rows},
          .out = {pool.out, rows, s.heads, s.latent},
          .scratch = {pool.scratch, static_cast<int64_t>(s.ScratchBytes(call))}};
}

// One head of the last row that the last launch left, against plain softmax attention over the keys of its
// sequence, which are copied page by page.
void CheckLastRow(const Pool& pool, const Shape& s, const TreeAttentionMlaArgs& args,
                  std::span<const int32_t> pages) {
  const int64_t row = s.rows() - 1;
  const std::vector<float> query = Download(args.query.at(row, s.heads - 1), s.width());
  const int32_t sequence = 0;
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

double Measure(CudaBench& b, const Pool& pool, const Shape& s, const CallSize& call) {
  std::mt19937 random(1);
  FreePages free_pages(random);
  const int64_t queries = call.rows * s.heads * s.width();
  const int64_t most = std::min(kPoolSlots / kPageRows / (s.pages() * s.batch), kMostQueries * 576 / queries);
  const int sets =
      static_cast<int>(std::clamp<int64_t>(most, 1, std::min(CudaBench::SetsFor(s.KeyBytes()), 256)));
  std::vector<TreeAttentionMlaArgs> args;
  for (int i = 0; i < sets; ++i) {
    args.push_back(InputSet(b, pool, s, call, free_pages, random, queries * i));
  }
  const double microseconds = b.MedianMicroseconds(
      sets, [&](int i) { return cuda::TreeAttentionMla(args[static_cast<size_t>(i)], b.stream()); });
  CheckLastRow(pool, s, args.back(), free_pages.Last(s.pages()));
  return microseconds;
}

// --filter picks by kernel and shape.
bool Run(CudaBench& b, const Pool& pool, const Shape& s, Tables tables, double goal) {
  const std::string kernel = absl::StrFormat("tree_attention_mla_%dx%d", s.latent, s.rope);
  const std::string shape =
      absl::StrFormat("heads %d nodes %d prefix %d batch %d", s.heads, s.nodes, s.prefix, s.batch);
  if (!b.Wanted(kernel + " " + shape)) {
    return false;
  }
  const CallSize call = s.Call(tables);
  if (s.ScratchBytes(call) > pool.most_scratch) {
    std::printf("%s %s: left out, its working memory is %zu bytes, there are %zu\n", kernel.c_str(),
                shape.c_str(), s.ScratchBytes(call), pool.most_scratch);
    return false;
  }
  b.Report({.kernel = kernel,
            .shape = shape,
            .microseconds = Measure(b, pool, s, call),
            .floor_microseconds = std::max(s.Bytes() / kFloorBandwidth, s.Flops() / kFloorFlops) * 1e6,
            .goal_microseconds = goal});
  return true;
}

}  // namespace
}  // namespace arborist::kernels::bench

int main(int argc, char** argv) {
  using namespace arborist::kernels::bench;
  Tables tables = Tables::kService;
  std::vector<char*> others;
  for (char* flag : std::span(argv, static_cast<size_t>(argc))) {
    const std::string_view text = flag;
    if (text == "--tables=exact") {
      tables = Tables::kExact;
    } else if (text == "--tables=largest") {
      tables = Tables::kLargest;
    } else if (text != "--tables=service") {
      others.push_back(flag);
    }
  }
  CudaBench bench(static_cast<int>(others.size()), others.data());
  if (!bench.has_device()) {
    return 0;
  }
  const Pool pool(bench);
  for (const PublicFigure& f : kPublicFigures) {
    if (Run(bench, pool, {f.heads, 512, 64, f.nodes, f.prefix, f.batch}, tables,
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
      Run(bench, pool, {8, 128, 32, nodes, 512, batch}, tables, 0);
    }
  }
}
