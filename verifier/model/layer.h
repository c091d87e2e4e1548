#pragma once

#include "absl/status/status.h"
#include "verifier/kv_planes.h"
#include "verifier/model/model_weights.h"
#include "verifier/model/rank_context.h"
#include "verifier/step_batch.h"

namespace arborist::verifier {

// One decoder layer: takes the residual stream of scratch through attention and MLP.
absl::Status ForwardLayer(const RankContext& rank, const LayerWeights& weights, const StepBatchView& batch,
                          KvPlanes& planes, int layer);

}  // namespace arborist::verifier
