#pragma once

#include "kernels/tree_attention_mla/tensor_layout.cuh"
#include "kernels/tree_attention_mla/work_list.h"

// Shapes of the kernel for small calls (row_attention.cuh) and what lies where in a block's shared memory.
namespace arborist::kernels::cuda {

constexpr int kRowQueries = 8;
constexpr int kRowLoaders = 64;  // threads that bring keys
constexpr int kRowThreads = kTensorThreads + kRowLoaders;

template <int latent, int rope>
struct RowLayout {
  using K = Keys<latent, rope>;
  static constexpr int kTiles = latent > 256 ? 2 : 4;  // of 16 keys, a step
  static constexpr int kBuffers = latent > 256 ? 2 : 3;
  static constexpr int kStepKeys = kTiles * kTileKeys;
  static constexpr int kBufferBytes = kTiles * K::kStageBytes;
  // Scores lie as [quarter][tile][half of the keys][8 queries][8 keys], where the last four queries stand 8
  // floats further: neither fragments that are stored nor pairs of keys that are read meet in a bank.
  static constexpr int kHalf = kRowQueries * 8 + 8;
  static constexpr int kKeys = 0;
  static constexpr int kScores = kBuffers * kBufferBytes;
  static constexpr int kSlots = kScores + kQuarters * kTiles * 2 * kHalf * 4;
  static constexpr int kBytes = kSlots + SplitLength(2) * kPageRows * 4;
  static_assert(kBytes <= 99 * 1024, "what sm_120 has for a block");
  static constexpr int Score(int quarter, int tile, int half, int query) {
    return ((quarter * kTiles + tile) * 2 + half) * kHalf + query * 8 + query / 4 * 8;
  }
};

}  // namespace arborist::kernels::cuda
