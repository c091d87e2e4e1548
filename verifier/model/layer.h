#pragma once

#include "absl/status/status.h"
#include "verifier/kv_planes.h"
#include "verifier/model/model_weights.h"
#include "verifier/model/rank_context.h"
#include "verifier/step_batch.h"

namespace arborist::verifier {

// One decoder layer: takes the residual stream of scratch through attention and MLP. scratch.normed is its
// input norm before, and the norm by next_norm (the next layer's, or the last of all) afterwards. What the
// layer leaves goes to `tap` too, unless that has no columns.
absl::Status ForwardLayer(const RankContext& rank, const LayerWeights& weights, View1<const float> next_norm,
                          View2<float> tap, const StepBatchView& batch, KvPlanes& planes, int layer);

}  // namespace arborist::verifier
