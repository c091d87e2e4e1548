#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "common/tensor/view.h"
#include "common/threads/thread_pool.h"
#include "drafter/context_cache.h"
#include "drafter/model/dflash_config.h"
#include "drafter/model/dflash_weights.h"
#include "drafter/model/rotary_tables.h"
#include "drafter/model/scratch.h"
#include "kernels/kernel_set.h"

namespace arborist::drafter {

// What every step of a forward pass needs; nothing in it is owned.
struct ForwardPass {
  const kernels::KernelSet& kernels;
  StreamView stream;
  const DFlashSettings& settings;
  const RotaryTables& rotary;
  Scratch& scratch;
};

// One layer's keys and values of context rows: the block's own projections applied to the features as they
// are. `positions` belong to the rows; key and value are [rows, kv_heads * head_dim].
absl::Status WriteContextLayer(const ForwardPass& pass, const DFlashLayerWeights& layer,
                               View2<const float> features, View1<const int32_t> positions, float* key,
                               float* value);

// Norm, attention over [context, block], residual, norm, MLP, residual: on scratch.residual, for the block at
// scratch.position.
absl::Status RunBlockLayer(const ForwardPass& pass, int64_t index, const DFlashLayerWeights& layer,
                           const ContextView& context);

// Sets scratch.{context_begin, block_begin, block_end} for a block whose slot 0 has `position`.
void SetVisibility(const LayerVisibility& layer, const ContextView& context, int32_t position, int32_t block,
                   Scratch& scratch);

}  // namespace arborist::drafter
