#pragma once

#include <cstdint>

#include "kernels/tree_attention_mla/work_list.h"

// Shapes of the tensor-core kernel (tensor_attention.cuh) and what lies where in a block's shared memory.
namespace arborist::kernels::cuda {

constexpr int kTensorThreads = 256;
constexpr int kTileKeys = 16;
constexpr int kStages = 4;
constexpr int kQuarters = 4;
constexpr int kHalves = 2;
constexpr int kMostTailRows = 8;
// The reference maximum of a query moves only when a score exceeds it by 2^8: p stays below 256, which bf16
// and fp32 hold as well, and O is seldom rescaled. A function of the query's own scores.
constexpr float kSlack = 8;
// Of an item: a split of 1024 keys, or eight tails that share no tile.
constexpr int kMostSteps = SplitLength(2) * kPageRows / kTileKeys;

template <int latent, int rope>
struct Keys {
  static constexpr int kWidth = latent + rope;
  static constexpr int kStride = kWidth + 8;  // elements; rows then start in different banks
  static constexpr int kStageBytes = kTileKeys * kStride * 2;
  static constexpr int kSteps = kWidth / 16;
  static constexpr int kQuarterSteps = (kSteps + kQuarters - 1) / kQuarters;
  static constexpr int kColumnTiles = latent / 16 / 8;    // of 16 columns, a warp
  static constexpr bool kPacked = kColumnTiles % 2 == 0;  // the order of a partial result, see PartColumn
};

// Shared memory of a block, in this order.
template <int latent, int rope, int queries>
struct Layout {
  static constexpr int kKeys = 0;
  static constexpr int kScores = kKeys + kStages * Keys<latent, rope>::kStageBytes;
  static constexpr int kWeights = kScores + kQuarters * queries * kTileKeys * 4;
  static constexpr int kWeightStride = kTileKeys + 8;  // elements
  static constexpr int kAlpha = kWeights + queries * kWeightStride * 2;
  static constexpr int kLimit = kAlpha + queries * 4;
  static constexpr int kPart = kLimit + queries * 4;
  static constexpr int kSlots = kPart + queries * 4;
  static constexpr int kSteps = kSlots + kMostSteps * kTileKeys * 4;
  static constexpr int kBytes = kSteps + kMostSteps * 4;
  static_assert(kBytes <= 99 * 1024, "what sm_120 has for a block");
};

// Scores lie as [quarter][row][16 keys]; row r of eight is query r ^ (r / 2 % 2), and the four groups of four
// keys are exchanged by twos in rows 4..7: writes of mma fragments and reads of four keys are then free of
// bank conflicts.
constexpr int ScoreRowQuery(int r) { return r ^ ((r >> 1) & 1); }
constexpr int ScoreGroup(int r, int group) { return group ^ (((r >> 2) & 1) * 2); }

}  // namespace arborist::kernels::cuda
