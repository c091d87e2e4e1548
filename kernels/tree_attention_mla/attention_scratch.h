#pragma once

#include <cstddef>
#include <utility>

#include "common/base/math.h"
#include "kernels/attention_block/attention_block.h"

namespace arborist::kernels {

// One thread's working memory: partial results of the block at hand, the split and everything so far, and the
// block's scores.
struct AttentionScratch {
  AttentionPart block;
  AttentionPart split;
  AttentionPart total;
  float* score;

  AttentionScratch(float* memory, int64_t latent)
      : block(MakeAttentionPart(memory, latent)),
        split(MakeAttentionPart(memory + AttentionPartFloats(latent), latent)),
        total(MakeAttentionPart(memory + 2 * AttentionPartFloats(latent), latent)),
        score(memory + 3 * AttentionPartFloats(latent)) {}
};

constexpr size_t AttentionScratchBytes(int64_t latent) {
  const int64_t floats = 3 * AttentionPartFloats(latent) + kAttentionTileQueries * kAttentionBlockKeys;
  return static_cast<size_t>(RoundUp(floats * 4, 64));
}

}  // namespace arborist::kernels
