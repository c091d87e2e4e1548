#include "verifier/model/layer.h"

#include "common/base/status_macros.h"
#include "verifier/model/mla_attention.h"
#include "verifier/model/mlp.h"

namespace arborist::verifier {

absl::Status ForwardLayer(const RankContext& rank, const LayerWeights& weights, View1<const float> next_norm,
                          View2<float> tap, const StepBatchView& batch, KvPlanes& planes, int layer) {
  const int64_t hidden = rank.config.hidden_size;
  const View2<float> residual = Scratch::Rows(rank.scratch.residual, batch.rows, hidden);
  const View2<float> normed = Scratch::Rows(rank.scratch.normed, batch.rows, hidden);
  const View2<float> update = Scratch::Rows(rank.scratch.update, batch.rows, hidden);
  const auto add_and_norm = [&](View1<const float> weight, View2<float> copy) {
    return rank.kernels.add_rms_norm({.from = Const(update),
                                      .into = residual,
                                      .weight = weight,
                                      .out = normed,
                                      .epsilon = rank.meaning.layer_epsilon,
                                      .copy = copy},
                                     rank.stream);
  };

  RETURN_IF_ERROR(MlaAttention(rank, weights.attention, batch, Const(normed), planes, layer, update));
  RETURN_IF_ERROR(add_and_norm(weights.post_attention_norm, {}));
  RETURN_IF_ERROR(weights.is_moe ? Moe(rank, weights, batch, Const(normed), layer, update)
                                 : DenseMlp(rank, weights.dense, Const(normed), update));
  return add_and_norm(next_norm, tap);
}

}  // namespace arborist::verifier
