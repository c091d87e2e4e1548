#include <algorithm>
#include <array>
#include <cstring>

#include "common/base/status_macros.h"
#include "kernels/attention_block/attention_block.h"
#include "kernels/block_attention_gqa/block_attention_gqa.h"

namespace arborist::kernels::cpu {
namespace {

// Rows [begin, end) of one stream see the same keys; with the heads [head, head + heads) of one key head they
// are a tile.
struct Tile {
  int64_t stream;
  int64_t begin;
  int64_t end;
  int64_t head;
  int64_t heads;
  int64_t kv_head;
};

class Attention {
 public:
  explicit Attention(const BlockAttentionGqaArgs& args)
      : args_(args),
        head_dim_(args.query.columns),
        total_(MakeAttentionPart(total_memory_.data(), head_dim_)),
        chunk_(MakeAttentionPart(chunk_memory_.data(), head_dim_)) {}

  void Run(const Tile& tile) {
    const auto queries = static_cast<int>((tile.end - tile.begin) * tile.heads);
    for (int64_t row = tile.begin; row < tile.end; ++row) {
      std::memcpy(query_.data() + (row - tile.begin) * tile.heads * head_dim_, args_.query.at(row, tile.head),
                  static_cast<size_t>(tile.heads * head_dim_) * sizeof(float));
    }
    const int64_t context = args_.context_rows[tile.stream] - args_.context_begin[tile.begin];
    const int64_t keys = context + args_.block_end[tile.begin] - args_.block_begin[tile.begin];
    for (int64_t first = 0; first < keys; first += kAttentionBlockKeys) {
      const auto count = static_cast<int>(std::min<int64_t>(keys - first, kAttentionBlockKeys));
      for (int j = 0; j < count; ++j) {
        PointAt(tile, first + j, context, j);
      }
      Attend(queries, count, first == 0 ? total_ : chunk_);
      if (first > 0) {
        MergeParts(chunk_, queries, head_dim_, total_);
      }
    }
    WriteOut(tile);
  }

 private:
  // Visible key `index` of the tile becomes key `j` of the chunk.
  void PointAt(const Tile& tile, int64_t index, int64_t context, int j) {
    if (index < context) {
      const int64_t row = args_.context_first[tile.stream] + args_.context_begin[tile.begin] + index;
      const int64_t offset = (row * args_.block_key.heads + tile.kv_head) * head_dim_;
      key_[j] = args_.context_key + offset;
      value_[j] = args_.context_value + offset;
    } else {
      const int64_t row = tile.stream * args_.block + args_.block_begin[tile.begin] + (index - context);
      key_[j] = args_.block_key.at(row, tile.kv_head);
      value_[j] = args_.block_value.at(row, tile.kv_head);
    }
  }

  void Attend(int queries, int keys, const AttentionPart& part) {
    AttendBlock({.query = query_.data(),
                 .query_stride = head_dim_,
                 .queries = queries,
                 .key = key_.data(),
                 .value = value_.data(),
                 .keys = keys,
                 .width = head_dim_,
                 .columns = head_dim_,
                 .scale = args_.scale,
                 .score = score_.data()},
                part);
  }

  void WriteOut(const Tile& tile) {
    AttentionPart part = total_;
    for (int64_t row = tile.begin; row < tile.end; ++row) {
      FinishPart(part, static_cast<int>(tile.heads), head_dim_, args_.out.at(row, tile.head), head_dim_);
      part.max += tile.heads;
      part.sum += tile.heads;
      part.acc += tile.heads * part.acc_stride;
    }
  }

  const BlockAttentionGqaArgs& args_;
  const int64_t head_dim_;
  // About 120 KB of stack: the head dimension is bounded.
  std::array<float, AttentionPartFloats(kMaxGqaHeadDim)> total_memory_;
  std::array<float, AttentionPartFloats(kMaxGqaHeadDim)> chunk_memory_;
  std::array<float, kAttentionTileQueries * kMaxGqaHeadDim> query_;
  std::array<float, kAttentionTileQueries * kAttentionBlockKeys> score_;
  std::array<const float*, kAttentionBlockKeys> key_;
  std::array<const float*, kAttentionBlockKeys> value_;
  AttentionPart total_;
  AttentionPart chunk_;
};

bool SameKeys(const BlockAttentionGqaArgs& args, int64_t a, int64_t b) {
  return args.context_begin[a] == args.context_begin[b] && args.block_begin[a] == args.block_begin[b] &&
         args.block_end[a] == args.block_end[b];
}

// All rows of a stream under one key head, at most kAttentionTileQueries queries at a time.
void AttendKvHead(const BlockAttentionGqaArgs& args, int64_t stream, int64_t kv_head, Attention& attention) {
  const int64_t group = args.query.heads / args.block_key.heads;
  const int64_t rows_a_tile = std::max<int64_t>(1, kAttentionTileQueries / group);
  const int64_t block_end = (stream + 1) * args.block;
  for (int64_t begin = stream * args.block; begin < block_end;) {
    int64_t end = begin + 1;
    while (end < block_end && end - begin < rows_a_tile && SameKeys(args, begin, end)) {
      ++end;
    }
    for (int64_t head = 0; head < group; head += kAttentionTileQueries) {
      const int64_t heads = std::min<int64_t>(group - head, kAttentionTileQueries);
      attention.Run({stream, begin, end, kv_head * group + head, heads, kv_head});
    }
    begin = end;
  }
}

}  // namespace

absl::Status BlockAttentionGqa(const BlockAttentionGqaArgs& args, StreamView stream) {
  RETURN_IF_ERROR(ValidateBlockAttentionGqa(args));
  const int64_t kv_heads = args.block_key.heads;
  stream.threads->ParallelFor(args.context_rows.size * kv_heads, 1, [&](int64_t begin, int64_t end, int) {
    Attention attention(args);
    for (int64_t i = begin; i < end; ++i) {
      AttendKvHead(args, i / kv_heads, i % kv_heads, attention);
    }
  });
  return absl::OkStatus();
}

}  // namespace arborist::kernels::cpu
