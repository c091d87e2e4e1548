#pragma once

#include <algorithm>
#include <cstdint>

#include "common/base/math.h"

namespace arborist::kernels {

// What the CUDA column keeps between its launches.

// Ids that one warp reads at once and whose exponentials it adds; part of the order of log_prob's sum.
inline constexpr int64_t kTopKTile = 1024;
// Ids that the 8 warps of a block read side by side.
inline constexpr int64_t kTopKRound = 8 * kTopKTile;

// Largest values that are kept of a tile: of every 16 ids.
inline constexpr int64_t kTopKTileMaxima = 64;

struct alignas(8) TopKTileSum {
  float max;  // of x
  float sum;  // of exp((x - max) * beta)
};

struct alignas(8) TopKPartResult {
  float logit_max;  // of the part's logits; rows with noise only
  int32_t finite;
};

// How rows are cut among blocks. No result depends on it: enough blocks to fill the largest chips a few times
// over; where rows are that many, a row is one part and is finished by the block that read it.
inline constexpr int64_t kTopKWantedBlocks = 1024;

struct TopKCut {
  int64_t part_ids;  // a multiple of kTopKRound
  int64_t parts;
};
inline TopKCut TopKCutOf(int64_t rows, int64_t vocabulary) {
  const int64_t rounds = CeilDiv(vocabulary, kTopKRound);
  const int64_t a_part = std::clamp<int64_t>(rows * rounds / kTopKWantedBlocks, 1, rounds);
  return {a_part * kTopKRound, CeilDiv(rounds, a_part)};
}
// Parts of so many rows or fewer: never less for more rows.
inline int64_t TopKMostParts(int64_t rows, int64_t vocabulary) {
  return std::min(rows * CeilDiv(vocabulary, kTopKRound), 2 * kTopKWantedBlocks + rows);
}

}  // namespace arborist::kernels
