#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include "common/base/check.h"
#include "kernels/tree_attention_mla/tree_attention_mla.h"

// A cache and a batch of rows for tests, laid out as the verifier lays them out: whole pages by a page table,
// the tail by slots.
namespace arborist::kernels::testing {

struct AttentionShape {
  int64_t heads = 2;
  int64_t latent = 24;
  int64_t rope = 8;
  int64_t width() const { return latent + rope; }
};

// The key row or the query (all heads) of one token at one place: tests hold them apart from any slot.
using Vector = std::vector<float>;

class Random {
 public:
  uint32_t Below(uint32_t bound) { return static_cast<uint32_t>(random_() % bound); }
  Vector Normal(int64_t count, float deviation) {
    std::normal_distribution<float> normal(0, deviation);
    Vector values(count);
    for (float& value : values) {
      value = normal(random_);
    }
    return values;
  }
  template <typename T>
  void Shuffle(std::vector<T>& values) {
    std::shuffle(values.begin(), values.end(), random_);
  }

 private:
  std::mt19937_64 random_{std::random_device{}()};
};

// Cache of `pages` shuffled pages. Everything unwritten is a NaN, so a read of it shows.
class AttentionCase {
 public:
  AttentionCase(const AttentionShape& shape, int64_t pages) : shape_(shape), pages_(pages) {
    cache_.assign(pages * kPageRows * shape.width(), __builtin_nanf(""));
    for (int64_t page = 0; page < pages; ++page) {
      free_.push_back(static_cast<int32_t>(page));
    }
    random_.Shuffle(free_);
  }

  // A new sequence with room for `positions` slots; returns its index.
  int32_t AddSequence(int64_t positions) {
    tables_.push_back({});
    Grow(positions);
    return static_cast<int32_t>(tables_.size()) - 1;
  }

  // The same, but its first `shared` pages are those of `other`, as after a prefix hit.
  int32_t AddSequence(int64_t positions, int32_t other, int64_t shared) {
    tables_.push_back({tables_[other].begin(), tables_[other].begin() + shared});
    Grow(positions);
    return static_cast<int32_t>(tables_.size()) - 1;
  }

  // The slot of logical index `index` (committed: the position; tree rows: wherever the caller puts them).
  int32_t Slot(int32_t sequence, int64_t index) const {
    return tables_[sequence][index / kPageRows] * kPageRows + static_cast<int32_t>(index % kPageRows);
  }

  void Write(int32_t slot, const Vector& key) {
    std::copy(key.begin(), key.end(), cache_.begin() + slot * shape_.width());
  }

  // A row whose keys are, in position order, the slots `keys` (its own last). Those below the prefix rule's
  // boundary must be the sequence's committed positions.
  void AddRow(int32_t sequence, const Vector& query, const std::vector<int32_t>& keys) {
    const auto position = static_cast<int32_t>(keys.size()) - 1;
    const int32_t blocks = PrefixBlocks(position);
    sequence_.push_back(sequence);
    prefix_blocks_.push_back(blocks);
    query_.insert(query_.end(), query.begin(), query.end());
    const auto tail = keys.begin() + int64_t{blocks} * kPageRows;
    tail_count_.push_back(static_cast<int32_t>(keys.end() - tail));
    tail_slot_.insert(tail_slot_.end(), tail, keys.end());
    tail_slot_.resize(sequence_.size() * kMaxTailKeys, -1);
  }

  // As a captured bucket ends.
  void AddPaddingRow() {
    sequence_.push_back(0);
    prefix_blocks_.push_back(0);
    query_.resize(query_.size() + shape_.heads * shape_.width(), 0.0f);
    tail_count_.push_back(0);
    tail_slot_.resize(sequence_.size() * kMaxTailKeys, -1);
  }

  // The same cache and rows through a table of slots instead of pages.
  void UseSlotTable() { page_rows_ = 1; }

  // A page table with room for more than is there, as recorded calls have.
  void WidenTable(int64_t sequences, int64_t pages) {
    least_sequences_ = sequences;
    least_pages_ = pages;
  }

  int64_t rows() const { return static_cast<int64_t>(sequence_.size()); }
  const AttentionShape& shape() const { return shape_; }

  // Valid until something is added.
  TreeAttentionMlaArgs Args(std::vector<float>& out, std::vector<std::byte>& scratch, int threads) {
    auto pages = static_cast<size_t>(least_pages_);
    for (const auto& table : tables_) {
      pages = std::max(pages, table.size());
    }
    const int32_t entries = kPageRows / page_rows_;  // of a page
    page_table_.clear();
    for (const auto& table : tables_) {
      for (const int32_t page : table) {
        for (int32_t i = 0; i < entries; ++i) {
          page_table_.push_back(page * entries + i);
        }
      }
      page_table_.resize(page_table_.size() + (pages - table.size()) * entries, -1);
    }
    const auto columns = static_cast<int64_t>(pages) * entries;
    const int64_t sequences = std::max(least_sequences_, static_cast<int64_t>(tables_.size()));
    page_table_.resize(sequences * columns, -1);
    out.assign(rows() * shape_.heads * shape_.latent, __builtin_nanf(""));
    scratch.assign(TreeAttentionMlaScratchBytes(shape_.latent, threads), std::byte{0xFF});
    return {.query = {query_.data(), rows(), shape_.heads, shape_.width()},
            .cache = cache_.data(),
            .slots = pages_ * kPageRows,
            .latent = shape_.latent,
            .rope = shape_.rope,
            .scale = 0.3f,
            .sequence = {sequence_.data(), rows()},
            .page_table = {page_table_.data(), sequences, columns, columns},
            .page_rows = page_rows_,
            .prefix_blocks = {prefix_blocks_.data(), rows()},
            .tail_slot = {tail_slot_.data(), rows(), kMaxTailKeys, kMaxTailKeys},
            .tail_count = {tail_count_.data(), rows()},
            .out = {out.data(), rows(), shape_.heads, shape_.latent},
            .scratch = {scratch.data(), static_cast<int64_t>(scratch.size())}};
  }

 private:
  // The last sequence gets pages for `positions` slots.
  void Grow(int64_t positions) {
    std::vector<int32_t>& pages = tables_.back();
    while (static_cast<int64_t>(pages.size()) * kPageRows < positions) {
      Check(!free_.empty(), "the case has pages enough");
      pages.push_back(free_.back());
      free_.pop_back();
    }
  }

  AttentionShape shape_;
  int64_t pages_;
  int64_t least_sequences_ = 0;
  int64_t least_pages_ = 1;
  int32_t page_rows_ = kPageRows;
  Random random_;
  std::vector<float> cache_;
  std::vector<int32_t> free_;
  std::vector<std::vector<int32_t>> tables_;
  std::vector<float> query_;
  std::vector<int32_t> sequence_;
  std::vector<int32_t> prefix_blocks_;
  std::vector<int32_t> tail_slot_;
  std::vector<int32_t> tail_count_;
  std::vector<int32_t> page_table_;
};

// Some of a case's rows, for a call of their own.
struct RowRange {
  int64_t begin = 0;
  int64_t rows = 0;
};
inline TreeAttentionMlaArgs RowsOf(const TreeAttentionMlaArgs& all, const RowRange& call) {
  const auto [begin, rows] = call;
  TreeAttentionMlaArgs args = all;
  args.query = {all.query.data + begin * all.query.heads * all.query.columns, rows, all.query.heads,
                all.query.columns};
  args.sequence = {all.sequence.data + begin, rows};
  args.prefix_blocks = {all.prefix_blocks.data + begin, rows};
  args.tail_slot = {all.tail_slot.row(begin), rows, all.tail_slot.columns, all.tail_slot.row_stride};
  args.tail_count = {all.tail_count.data + begin, rows};
  args.out = {all.out.data + begin * all.out.heads * all.out.columns, rows, all.out.heads, all.out.columns};
  return args;
}

// Output as bits, one vector a row, of several calls one after another.
inline std::vector<std::vector<uint32_t>> RunAttention(AttentionCase& c, int threads,
                                                       const std::vector<RowRange>& calls) {
  ThreadPool pool(threads);
  std::vector<float> out;
  std::vector<std::byte> scratch;
  const TreeAttentionMlaArgs all = c.Args(out, scratch, threads);
  const int64_t row_size = c.shape().heads * c.shape().latent;
  std::vector<std::vector<uint32_t>> bits;
  for (const RowRange& call : calls) {
    const TreeAttentionMlaArgs args = RowsOf(all, call);
    std::fill_n(args.out.data, call.rows * row_size, __builtin_nanf(""));
    const absl::Status status = cpu::TreeAttentionMla(args, {.threads = &pool});
    Check(status.ok(), std::string(status.message()));
    for (int64_t row = 0; row < call.rows; ++row) {
      bits.emplace_back(row_size);
      std::memcpy(bits.back().data(), args.out.data + row * row_size, row_size * sizeof(float));
    }
  }
  return bits;
}
inline std::vector<std::vector<uint32_t>> RunAttention(AttentionCase& c, int threads) {
  return RunAttention(c, threads, {{0, c.rows()}});
}

}  // namespace arborist::kernels::testing
