#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "common/tensor/view.h"
#include "common/threads/thread_pool.h"
#include "drafter/context_cache.h"
#include "drafter/model/block_batch.h"
#include "drafter/model/dflash_config.h"
#include "drafter/model/placed_weights.h"
#include "drafter/model/scratch.h"
#include "kernels/kernel_set.h"

namespace arborist::drafter {

// What every step of a forward pass needs; nothing in it is owned. All arrays are the device's.
struct ForwardPass {
  const kernels::KernelSet& kernels;
  StreamView stream;
  const DFlashSettings& settings;
  View2<const float> cosine, sine;
  const Scratch& scratch;
};

// One layer's keys and values of context rows: the block's own projections applied to the features as they
// are. `positions` belong to the rows; key and value are [rows, kv_heads * head_dim].
absl::Status WriteContextLayer(const ForwardPass& pass, const PlacedLayer& layer, View2<const float> features,
                               View1<const int32_t> positions, float* key, float* value);

// Attention over [context, block], residual, norm, MLP, residual: on scratch.residual, for the blocks of
// `batch`. scratch.normed holds their input norm, and behind them the batch's features, whose keys and values
// enter `planes` before attention reads them. It is left with `next_norm` of the outcome, the norm of whoever
// reads the residual next (empty: none).
absl::Status RunBlockLayer(const ForwardPass& pass, int64_t index, const PlacedLayer& layer,
                           View1<const float> next_norm, const BlockBatch& batch, const ContextPlanes& planes,
                           int64_t max_context);

}  // namespace arborist::drafter
