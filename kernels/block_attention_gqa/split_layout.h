#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/block_attention_gqa/block_attention_gqa.h"

// How the CUDA version cuts its work: a tile is up to 16 of the queries (row-major by block row, then head of
// the group) that read one key head in one stream; a chunk is a fixed number of neighbouring keys of the list
// that the stream's context rows and its block make.
namespace arborist::kernels::gqa {

inline constexpr int kTileQueries = 16;

// Keys of a chunk: as many as fit shared memory beside their values. A function of head_dim alone, since it
// is part of the result's bits.
constexpr int ChunkKeys(int64_t head_dim) { return head_dim <= 32 ? 256 : head_dim <= 64 ? 128 : 64; }

// Scratch: a partial result a (tile, chunk); at its very end an arrival counter a tile, so that a call with
// fewer streams has its counters among those of a call with more.
struct SplitLayout {
  int64_t streams = 0;
  int64_t kv_heads = 0;
  int64_t tiles = 0;       // of a key head in a stream
  int64_t max_chunks = 0;  // of a tile
  int64_t padded_dim = 0;  // head_dim in whole float4s
  int chunk_keys = 0;

  constexpr int64_t all_tiles() const { return streams * kv_heads * tiles; }
  // Accumulated values, then the greatest score and the sum of each query.
  constexpr int64_t part_floats() const { return kTileQueries * (padded_dim + 2); }
  constexpr int64_t counter_bytes() const { return all_tiles() * int64_t{sizeof(uint32_t)}; }
  constexpr size_t bytes() const {
    return static_cast<size_t>(counter_bytes() +
                               all_tiles() * max_chunks * part_floats() * int64_t{sizeof(float)});
  }
};

inline SplitLayout SplitLayoutOf(const BlockAttentionGqaArgs& args) {
  const int64_t kv_heads = std::max<int64_t>(args.block_key.heads, 1),
                block = std::max<int64_t>(args.block, 1);
  const int64_t queries = args.query.heads / kv_heads * block;
  const int chunk_keys = ChunkKeys(args.query.columns);
  return {.streams = args.query.rows / block,
          .kv_heads = kv_heads,
          .tiles = (queries + kTileQueries - 1) / kTileQueries,
          .max_chunks = (args.max_context + block + chunk_keys - 1) / chunk_keys,
          .padded_dim = (args.query.columns + 3) / 4 * 4,
          .chunk_keys = chunk_keys};
}

}  // namespace arborist::kernels::gqa
