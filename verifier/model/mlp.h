#pragma once

#include "absl/status/status.h"
#include "common/tensor/view.h"
#include "verifier/model/model_weights.h"
#include "verifier/model/rank_context.h"
#include "verifier/step_batch.h"

namespace arborist::verifier {

// out = down(silu(gate x) * (up x)), summed over the ranks.
absl::Status DenseMlp(const RankContext& rank, const kernels::ExpertWeights& weights,
                      View2<const float> normed, View2<float> out);

// out = the weighted experts that the router chooses, plus the shared expert, summed over the ranks. Every
// rank routes alike.
absl::Status Moe(const RankContext& rank, const LayerWeights& weights, const StepBatchView& batch,
                 View2<const float> normed, int layer, View2<float> out);

}  // namespace arborist::verifier
