#include "kernels/tree_attention_mla/division.h"

#include <algorithm>

#include "common/base/math.h"

namespace arborist::kernels {
namespace {

constexpr int kFewQueries = 16;

// Tiles that leave few columns of an average sequence empty.
int TileQueries(const CallExtent& call) {
  const int64_t sequences = std::clamp<int64_t>(call.sequences, 1, call.rows);
  const int64_t queries = CeilDiv(call.rows * call.heads, sequences);
  constexpr int kManySequences = 8;  // from here on equal costs mean the smaller
  int best = 64;
  int64_t least = INT64_MAX;
  for (const int tile : {64, 48, 32, kFewQueries}) {
    // A tile's cost has a part that does not depend on its queries: some 24 queries' worth.
    const int64_t cost = CeilDiv(queries, tile) * (tile + 24);
    if (cost < least || (cost == least && sequences >= kManySequences)) {
      least = cost;
      best = tile;
    }
  }
  return best;
}

}  // namespace

Division DivisionOf(const CallExtent& call, int processors) {
  // Where all parts of all rows run nearly at once, two blocks an SM. A part of four blocks of prefix is
  // short.
  const int64_t most_blocks = call.blocks <= 32 ? 10 * processors / 3 : 2 * processors;
  if (call.rows * (call.heads / 8) * call.parts <= most_blocks) {
    return {.by_rows = true};
  }
  // Few rows: a tail an item, for they all run at once. Many rows: tails that share most of their keys
  // together.
  constexpr int kManyRows = 160;
  const int tile = TileQueries(call);
  const bool together = tile >= 48 && (call.rows > kManyRows || call.heads > kFewQueries);
  return {.tile_queries = tile, .tail_queries = together ? tile : kFewQueries};
}

}  // namespace arborist::kernels
