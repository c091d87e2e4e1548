#include "drafter/model/dflash_layer.h"

#include <algorithm>

#include "common/base/status_macros.h"

namespace arborist::drafter {
namespace {

template <typename T>
View2<T> Rows(T* data, int64_t rows, int64_t columns) {
  return {data, rows, columns, columns};
}

absl::Status Linear(const ForwardPass& pass, View2<const float> x, const WeightView& weight, float* out) {
  return pass.kernels.linear({.x = x, .weight = weight, .out = Rows(out, x.rows, weight.rows)}, pass.stream);
}

absl::Status Norm(const ForwardPass& pass, const float* x, const std::vector<float>& weight, int64_t rows,
                  float* out) {
  const int64_t columns = static_cast<int64_t>(weight.size());
  return pass.kernels.rms_norm({.x = Rows(x, rows, columns),
                                .weight = {weight.data(), columns},
                                .out = Rows(out, rows, columns),
                                .epsilon = pass.settings.epsilon},
                               pass.stream);
}

// Per-head norm, then the rotation, in place.
absl::Status NormAndRotate(const ForwardPass& pass, const std::vector<float>& weight, int64_t heads,
                           View1<const int32_t> positions, float* x) {
  const DFlashSettings& s = pass.settings;
  if (s.reading.query_key_norm) {
    RETURN_IF_ERROR(Norm(pass, x, weight, positions.size * heads, x));
  }
  return pass.kernels.rope({.x = x,
                            .row_stride = heads * s.head_dim,
                            .head_stride = s.head_dim,
                            .heads = heads,
                            .position = positions,
                            .cosine = pass.rotary.cosine(),
                            .sine = pass.rotary.sine(),
                            .pairing = s.reading.pairing},
                           pass.stream);
}

void AddTo(std::vector<float>& residual, const std::vector<float>& added) {
  for (size_t i = 0; i < residual.size(); ++i) {
    residual[i] += added[i];
  }
}

absl::Status Attention(const ForwardPass& pass, int64_t index, const DFlashLayerWeights& layer,
                       const ContextView& context) {
  const DFlashSettings& s = pass.settings;
  Scratch& scratch = pass.scratch;
  const int64_t block = s.block;
  const View1<const int32_t> positions{scratch.position.data(), block};
  const View2<const float> normed = Rows<const float>(scratch.normed.data(), block, s.hidden);
  RETURN_IF_ERROR(Linear(pass, normed, layer.query, scratch.query.data()));
  RETURN_IF_ERROR(Linear(pass, normed, layer.key, scratch.key.data()));
  RETURN_IF_ERROR(Linear(pass, normed, layer.value, scratch.value.data()));
  RETURN_IF_ERROR(NormAndRotate(pass, layer.query_norm, s.heads, positions, scratch.query.data()));
  RETURN_IF_ERROR(NormAndRotate(pass, layer.key_norm, s.kv_heads, positions, scratch.key.data()));
  const int32_t context_first = 0, context_rows = static_cast<int32_t>(context.rows);
  RETURN_IF_ERROR(
      pass.kernels.block_attention_gqa({.query = {scratch.query.data(), block, s.heads, s.head_dim},
                                        .block = block,
                                        .context_key = context.key(index),
                                        .context_value = context.value(index),
                                        .plane_rows = context.rows,
                                        .context_first = {&context_first, 1},
                                        .context_rows = {&context_rows, 1},
                                        .max_context = context.rows,
                                        .context_begin = {scratch.context_begin.data(), block},
                                        .block_begin = {scratch.block_begin.data(), block},
                                        .block_end = {scratch.block_end.data(), block},
                                        .block_key = {scratch.key.data(), block, s.kv_heads, s.head_dim},
                                        .block_value = {scratch.value.data(), block, s.kv_heads, s.head_dim},
                                        .scale = s.attention_scale,
                                        .out = {scratch.attention.data(), block, s.heads, s.head_dim}},
                                       pass.stream));
  return Linear(pass, Rows<const float>(scratch.attention.data(), block, s.query_width()), layer.output,
                scratch.added.data());
}

absl::Status Mlp(const ForwardPass& pass, const DFlashLayerWeights& layer) {
  const DFlashSettings& s = pass.settings;
  Scratch& scratch = pass.scratch;
  const View2<const float> normed = Rows<const float>(scratch.normed.data(), s.block, s.hidden);
  RETURN_IF_ERROR(Linear(pass, normed, layer.gate, scratch.gate.data()));
  RETURN_IF_ERROR(Linear(pass, normed, layer.up, scratch.up.data()));
  const View2<float> gate = Rows(scratch.gate.data(), s.block, s.intermediate);
  RETURN_IF_ERROR(pass.kernels.silu_mul({.gate = Rows<const float>(gate.data, s.block, s.intermediate),
                                         .up = Rows<const float>(scratch.up.data(), s.block, s.intermediate),
                                         .out = gate},
                                        pass.stream));
  return Linear(pass, Rows<const float>(gate.data, s.block, s.intermediate), layer.down,
                scratch.added.data());
}

}  // namespace

absl::Status WriteContextLayer(const ForwardPass& pass, const DFlashLayerWeights& layer,
                               View2<const float> features, View1<const int32_t> positions, float* key,
                               float* value) {
  if (pass.settings.reading.context_through_input_norm) {
    RETURN_IF_ERROR(Norm(pass, features.data, layer.input_norm, features.rows, pass.scratch.normed.data()));
    features.data = pass.scratch.normed.data();
  }
  RETURN_IF_ERROR(Linear(pass, features, layer.key, key));
  RETURN_IF_ERROR(Linear(pass, features, layer.value, value));
  return NormAndRotate(pass, layer.key_norm, pass.settings.kv_heads, positions, key);
}

absl::Status RunBlockLayer(const ForwardPass& pass, int64_t index, const DFlashLayerWeights& layer,
                           const ContextView& context) {
  Scratch& scratch = pass.scratch;
  const int64_t block = pass.settings.block;
  RETURN_IF_ERROR(Norm(pass, scratch.residual.data(), layer.input_norm, block, scratch.normed.data()));
  RETURN_IF_ERROR(Attention(pass, index, layer, context));
  AddTo(scratch.residual, scratch.added);
  RETURN_IF_ERROR(Norm(pass, scratch.residual.data(), layer.attention_norm, block, scratch.normed.data()));
  RETURN_IF_ERROR(Mlp(pass, layer));
  AddTo(scratch.residual, scratch.added);
  return absl::OkStatus();
}

void SetVisibility(const LayerVisibility& layer, const ContextView& context, int32_t position, int32_t block,
                   Scratch& scratch) {
  for (int32_t i = 0; i < block; ++i) {
    const int64_t query = static_cast<int64_t>(position) + i;
    int64_t context_begin = 0, block_begin = 0, block_end = block;
    if (layer.window > 0) {
      const int64_t oldest = query - layer.window + 1;
      context_begin = std::clamp<int64_t>(oldest - context.first_position, 0, context.rows);
      block_begin = std::max<int64_t>(oldest - position, 0);
      block_end = std::min<int64_t>(i + layer.window, block);
    }
    if (layer.causal) {
      block_end = i + 1;
    }
    scratch.context_begin[i] = static_cast<int32_t>(context_begin);
    scratch.block_begin[i] = static_cast<int32_t>(block_begin);
    scratch.block_end[i] = static_cast<int32_t>(block_end);
  }
}

}  // namespace arborist::drafter
