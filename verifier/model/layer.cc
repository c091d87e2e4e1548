#include "verifier/model/layer.h"

#include "common/base/status_macros.h"
#include "verifier/model/mla_attention.h"
#include "verifier/model/mlp.h"

namespace arborist::verifier {
namespace {

absl::Status Norm(const RankContext& rank, View2<const float> x, View1<const float> weight,
                  View2<float> out) {
  return rank.kernels.rms_norm({.x = x, .weight = weight, .out = out, .epsilon = rank.meaning.layer_epsilon},
                               rank.stream);
}

}  // namespace

absl::Status ForwardLayer(const RankContext& rank, const LayerWeights& weights, const StepBatchView& batch,
                          KvPlanes& planes, int layer) {
  const int64_t hidden = rank.config.hidden_size;
  const View2<float> residual = Scratch::Rows(rank.scratch.residual, batch.rows, hidden);
  const View2<float> normed = Scratch::Rows(rank.scratch.normed, batch.rows, hidden);
  const View2<float> update = Scratch::Rows(rank.scratch.update, batch.rows, hidden);

  RETURN_IF_ERROR(Norm(rank, Const(residual), weights.input_norm, normed));
  RETURN_IF_ERROR(MlaAttention(rank, weights.attention, batch, Const(normed), planes, layer, update));
  RETURN_IF_ERROR(rank.kernels.add_rows({.from = Const(update), .into = residual}, rank.stream));

  RETURN_IF_ERROR(Norm(rank, Const(residual), weights.post_attention_norm, normed));
  RETURN_IF_ERROR(weights.is_moe ? Moe(rank, weights, batch, Const(normed), update)
                                 : DenseMlp(rank, weights.dense, Const(normed), update));
  return rank.kernels.add_rows({.from = Const(update), .into = residual}, rank.stream);
}

}  // namespace arborist::verifier
