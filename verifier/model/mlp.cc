#include "verifier/model/mlp.h"

#include "common/base/status_macros.h"

namespace arborist::verifier {

absl::Status DenseMlp(const RankContext& rank, const kernels::ExpertWeights& weights,
                      View2<const float> normed, View2<float> out) {
  const View2<float> gate = Scratch::Rows(rank.scratch.gate, normed.rows, weights.gate.rows);
  const View2<float> up = Scratch::Rows(rank.scratch.up, normed.rows, weights.up.rows);
  RETURN_IF_ERROR(rank.kernels.linear({.x = normed, .weight = weights.gate, .out = gate}, rank.stream));
  RETURN_IF_ERROR(rank.kernels.linear({.x = normed, .weight = weights.up, .out = up}, rank.stream));
  RETURN_IF_ERROR(rank.kernels.silu_mul({.gate = Const(gate), .up = Const(up), .out = gate}, rank.stream));
  RETURN_IF_ERROR(rank.kernels.linear_row_parallel({.x = Const(gate),
                                                    .weight = weights.down,
                                                    .out = out,
                                                    .full_inputs = rank.config.intermediate_size,
                                                    .first_segment = rank.plan.first_segment(),
                                                    .segment_count = rank.plan.segment_count()},
                                                   rank.stream));
  return SumOverRanks(rank, out);
}

absl::Status Moe(const RankContext& rank, const LayerWeights& weights, const StepBatchView& batch,
                 View2<const float> normed, int layer, View2<float> out) {
  const ModelConfig& config = rank.config;
  const Interpretation& meaning = rank.meaning;
  const int64_t rows = normed.rows, chosen = config.experts_per_token;
  const View2<float> logits = Scratch::Rows(rank.scratch.router, rows, config.routed_experts);
  const View2<float> weight = Scratch::Rows(rank.scratch.route_weight, rows, chosen);
  const View2<int32_t> expert{rank.scratch.route, rows, chosen, chosen};
  RETURN_IF_ERROR(rank.kernels.linear({.x = normed, .weight = weights.router, .out = logits}, rank.stream));
  const kernels::MoeRouteArgs route{
      .logits = Const(logits),
      .bias = meaning.correction_bias ? weights.router_bias : View1<const float>{},
      .scoring = meaning.scoring,
      .group_score = meaning.group_score,
      .groups = meaning.groups,
      .kept_groups = meaning.kept_groups,
      .top_k = static_cast<int>(chosen),
      .normalize = meaning.normalize,
      .scaling = meaning.routed_scaling,
      .expert = expert,
      .weight = weight};
  RETURN_IF_ERROR(rank.kernels.moe_route(route, rank.stream));
  if (rank.observer != nullptr) {
    RETURN_IF_ERROR(rank.observer->Routed(layer, route));
  }
  RETURN_IF_ERROR(rank.kernels.moe_experts({.x = normed,
                                            .expert = {expert.data, rows, chosen, chosen},
                                            .weight = Const(weight),
                                            .experts = weights.expert_table,
                                            .weight_dtype = weights.experts.front().gate.dtype,
                                            .width = weights.experts.front().gate.rows,
                                            .shared = config.shared_experts > 0 ? &weights.shared : nullptr,
                                            .full_width = config.moe_intermediate_size,
                                            .full_shared_width = config.shared_width(),
                                            .first_segment = rank.plan.first_segment(),
                                            .segment_count = rank.plan.segment_count(),
                                            .live_rows = batch.live_rows,
                                            .out = out,
                                            .scratch = rank.scratch.moe},
                                           rank.stream));
  return SumOverRanks(rank, out);
}

}  // namespace arborist::verifier
