#include <algorithm>
#include <array>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "kernels/attention_block/attention_block.h"
#include "kernels/tree_attention_mla/attention_scratch.h"
#include "kernels/tree_attention_mla/tree_attention_mla.h"

namespace arborist::kernels::cpu {
namespace {

static_assert(kPageRows == kAttentionBlockKeys, "a page is one block");

// A query is one head of one row: query index = row * heads + head.
struct Tile {
  int64_t begin;  // all in one sequence, with one prefix
  int64_t end;
};

class Attention {
 public:
  Attention(const TreeAttentionMlaArgs& args, float* memory)
      : args_(args),
        cache_(static_cast<const float*>(args.cache)),
        width_(args.latent + args.rope),
        scratch_(memory, args.latent) {}

  void Run(const Tile& tile) {
    const int64_t row = tile.begin / args_.query.heads;
    ReducePrefix(tile, row);
    for (int64_t begin = tile.begin; begin < tile.end;) {
      const int64_t end = std::min(tile.end, (begin / args_.query.heads + 1) * args_.query.heads);
      ReduceTail(tile, {begin, end});
      begin = end;
    }
    FinishPart(scratch_.total, static_cast<int>(tile.end - tile.begin), args_.latent,
               args_.out.data + tile.begin * args_.latent, args_.latent);
  }

 private:
  void Attend(const Tile& queries, int keys, const AttentionPart& part) {
    AttendBlock({.query = args_.query.data + queries.begin * width_,
                 .query_stride = width_,
                 .queries = static_cast<int>(queries.end - queries.begin),
                 .key = key_.data(),
                 .value = key_.data(),
                 .keys = keys,
                 .width = width_,
                 .columns = args_.latent,
                 .scale = args_.scale,
                 .score = scratch_.score},
                part);
  }

  // `part` becomes (part of) `into`; the first one is taken over as it is.
  void Merge(bool first, int queries, AttentionPart& part, AttentionPart& into) {
    if (first) {
      std::swap(part, into);
    } else {
      MergeParts(part, queries, args_.latent, into);
    }
  }

  void ReducePrefix(const Tile& tile, int64_t row) {
    const int32_t sequence = args_.sequence[row];
    const int32_t blocks = args_.prefix_blocks[row];
    const int queries = static_cast<int>(tile.end - tile.begin);
    for (int32_t block = 0; block < blocks; ++block) {
      for (int offset = 0; offset < kPageRows; ++offset) {
        key_[offset] = cache_ + args_.PrefixSlot(sequence, int64_t{block} * kPageRows + offset) * width_;
      }
      Attend(tile, kPageRows, scratch_.block);
      Merge(block % kSplitBlocks == 0, queries, scratch_.block, scratch_.split);
      if (block % kSplitBlocks == kSplitBlocks - 1 || block == blocks - 1) {
        Merge(block < kSplitBlocks, queries, scratch_.split, scratch_.total);
      }
    }
  }

  // The queries of one row inside the tile.
  void ReduceTail(const Tile& tile, const Tile& queries) {
    const int64_t row = queries.begin / args_.query.heads;
    const int count = static_cast<int>(queries.end - queries.begin);
    const int32_t* slot = args_.tail_slot.row(row);
    AttentionPart total = scratch_.total;
    total.max += queries.begin - tile.begin;
    total.sum += queries.begin - tile.begin;
    total.acc += (queries.begin - tile.begin) * total.acc_stride;
    const bool alone = args_.prefix_blocks[row] == 0;
    // Without a prefix the tail is the total, so it is reduced in place.
    const AttentionPart& tail = alone ? total : scratch_.split;
    if (args_.tail_count[row] == 0) {  // padding: 0 / 1
      std::fill_n(total.sum, count, 1.0f);
      std::fill_n(total.acc, count * total.acc_stride, 0.0f);
    }
    for (int32_t first = 0; first < args_.tail_count[row]; first += kAttentionBlockKeys) {
      const int keys = std::min(args_.tail_count[row] - first, kAttentionBlockKeys);
      for (int key = 0; key < keys; ++key) {
        key_[key] = cache_ + slot[first + key] * width_;
      }
      Attend(queries, keys, first == 0 ? tail : scratch_.block);
      if (first > 0) {
        MergeParts(scratch_.block, count, args_.latent, tail);
      }
    }
    if (!alone) {
      MergeParts(tail, count, args_.latent, total);
    }
  }

  const TreeAttentionMlaArgs& args_;
  const float* const cache_;
  const int64_t width_;
  AttentionScratch scratch_;
  std::array<const float*, kAttentionBlockKeys> key_;
};

// End of the run of rows from `row` that share sequence and prefix.
int64_t RunEnd(const TreeAttentionMlaArgs& args, int64_t row) {
  int64_t end = row + 1;
  while (end < args.query.rows && args.sequence[end] == args.sequence[row] &&
         args.prefix_blocks[end] == args.prefix_blocks[row]) {
    ++end;
  }
  return end;
}

void AttendQueries(const TreeAttentionMlaArgs& args, int64_t begin, int64_t end, float* memory) {
  Attention attention(args, memory);
  while (begin < end) {
    const int64_t run_end = RunEnd(args, begin / args.query.heads) * args.query.heads;
    const int64_t tile_end = std::min({end, run_end, begin + kAttentionTileQueries});
    attention.Run({begin, tile_end});
    begin = tile_end;
  }
}

int64_t KeysOf(const TreeAttentionMlaArgs& args, int64_t row) {
  return int64_t{args.prefix_blocks[row]} * kPageRows + args.tail_count[row];
}

// The first query of part `part` of `parts`, so that all parts read about equally many keys.
int64_t PartBegin(const TreeAttentionMlaArgs& args, int64_t total_keys, int64_t part, int64_t parts) {
  const int64_t target = total_keys * args.query.heads * part / parts;
  int64_t before = 0;
  for (int64_t row = 0; row < args.query.rows; ++row) {
    const int64_t keys = KeysOf(args, row);
    if (before + keys * args.query.heads > target) {  // never at a padding row, which has no keys
      return row * args.query.heads + (target - before) / keys;
    }
    before += keys * args.query.heads;
  }
  return args.query.rows * args.query.heads;
}

// Key times query products below which one thread is faster: some microseconds.
constexpr int64_t kMinElementsPerThread = 256 * 1024;

}  // namespace

absl::Status TreeAttentionMla(const TreeAttentionMlaArgs& args, StreamView stream) {
  RETURN_IF_ERROR(ValidateTreeAttentionMla(args));
  if (args.cache_dtype != DType::kF32) {
    return absl::InvalidArgumentError(
        absl::StrCat("cache_dtype=", std::string(Name(args.cache_dtype)), ", expected F32 on the CPU"));
  }
  const auto one_thread = static_cast<int64_t>(AttentionScratchBytes(args.latent));
  const int64_t buffers = args.scratch.size / one_thread;
  if (buffers < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("scratch.size=", args.scratch.size, ", expected at least ", one_thread, " a thread"));
  }
  int64_t keys = 0;
  for (int64_t row = 0; row < args.query.rows; ++row) {
    keys += KeysOf(args, row);
  }
  const int64_t elements = keys * args.query.heads * (args.latent + args.rope);
  const int64_t parts = std::clamp<int64_t>(elements / kMinElementsPerThread, 1,
                                            std::min<int64_t>(stream.threads->threads(), buffers));
  stream.threads->ParallelFor(parts, 1, [&](int64_t first, int64_t last, int) {
    for (int64_t part = first; part < last; ++part) {
      auto* memory = reinterpret_cast<float*>(args.scratch.data + part * one_thread);
      AttendQueries(args, PartBegin(args, keys, part, parts), PartBegin(args, keys, part + 1, parts), memory);
    }
  });
  return absl::OkStatus();
}

}  // namespace arborist::kernels::cpu
