#pragma once

#include "absl/status/status.h"
#include "common/tensor/view.h"
#include "verifier/kv_planes.h"
#include "verifier/model/model_weights.h"
#include "verifier/model/rank_context.h"
#include "verifier/step_batch.h"

namespace arborist::verifier {

// Absorbed multi-head latent attention: out = attention(normed), summed over the ranks. Writes the rows' K/V
// into the layer's plane before anything attends.
absl::Status MlaAttention(const RankContext& rank, const AttentionWeights& weights,
                          const StepBatchView& batch, View2<const float> normed, KvPlanes& planes, int layer,
                          View2<float> out);

}  // namespace arborist::verifier
