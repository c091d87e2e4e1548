#include "drafter/model/dflash_layer.h"

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

absl::Status Norm(const ForwardPass& pass, const float* x, View1<const float> weight, int64_t rows,
                  float* out) {
  return pass.kernels.rms_norm({.x = Rows(x, rows, weight.size),
                                .weight = weight,
                                .out = Rows(out, rows, weight.size),
                                .epsilon = pass.settings.epsilon},
                               pass.stream);
}

// Per-head norm, then the rotation, in place.
absl::Status NormAndRotate(const ForwardPass& pass, View1<const float> weight, int64_t heads,
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
                            .cosine = pass.cosine,
                            .sine = pass.sine,
                            .pairing = s.reading.pairing},
                           pass.stream);
}

absl::Status AddToResidual(const ForwardPass& pass, int64_t rows) {
  return pass.kernels.add_rows({.from = Rows<const float>(pass.scratch.added, rows, pass.settings.hidden),
                                .into = Rows(pass.scratch.residual, rows, pass.settings.hidden)},
                               pass.stream);
}

// Rows behind the blocks' are the context's: from scratch into their places.
absl::Status AppendToPlane(const ForwardPass& pass, const BlockBatch& batch, const float* rows, float* plane,
                           int64_t plane_rows) {
  const int64_t row_bytes = pass.settings.kv_width() * static_cast<int64_t>(sizeof(float));
  return pass.kernels.kv_append(
      {.rows = rows + batch.streams * pass.settings.block * pass.settings.kv_width(),
       .source_stride_bytes = row_bytes,
       .slot = {batch.append_slot.data, batch.append_rows},
       .plane = plane,
       .slots = plane_rows,
       .row_bytes = row_bytes},
      pass.stream);
}

absl::Status Attend(const ForwardPass& pass, int64_t index, const BlockBatch& batch,
                    const ContextPlanes& planes, int64_t max_context) {
  const DFlashSettings& s = pass.settings;
  const Scratch& scratch = pass.scratch;
  const int64_t rows = batch.streams * s.block;
  const auto ranges = [&](const View1<int32_t>& all) {
    return View1<const int32_t>{all.data + index * rows, rows};
  };
  return pass.kernels.block_attention_gqa({.query = {scratch.query, rows, s.heads, s.head_dim},
                                           .block = s.block,
                                           .context_key = planes.key(index),
                                           .context_value = planes.value(index),
                                           .plane_rows = planes.rows,
                                           .context_first = {batch.context_first.data, batch.streams},
                                           .context_rows = {batch.context_rows.data, batch.streams},
                                           .max_context = max_context,
                                           .context_begin = ranges(batch.context_begin),
                                           .block_begin = ranges(batch.block_begin),
                                           .block_end = ranges(batch.block_end),
                                           .block_key = {scratch.key, rows, s.kv_heads, s.head_dim},
                                           .block_value = {scratch.value, rows, s.kv_heads, s.head_dim},
                                           .scale = s.attention_scale,
                                           .out = {scratch.attention, rows, s.heads, s.head_dim},
                                           .scratch = scratch.splits,
                                           .scratch_bytes = scratch.splits_bytes},
                                          pass.stream);
}

absl::Status Attention(const ForwardPass& pass, int64_t index, const PlacedLayer& layer,
                       const BlockBatch& batch, const ContextPlanes& planes, int64_t max_context) {
  const DFlashSettings& s = pass.settings;
  const Scratch& scratch = pass.scratch;
  const int64_t rows = batch.streams * s.block, all = rows + batch.append_rows;
  RETURN_IF_ERROR(
      Linear(pass, Rows<const float>(scratch.normed, rows, s.hidden), layer.query, scratch.query));
  const View2<const float> keyed = Rows<const float>(scratch.normed, all, s.hidden);
  RETURN_IF_ERROR(Linear(pass, keyed, layer.key, scratch.key));
  RETURN_IF_ERROR(Linear(pass, keyed, layer.value, scratch.value));
  RETURN_IF_ERROR(NormAndRotate(pass, layer.query_norm, s.heads, {batch.position.data, rows}, scratch.query));
  RETURN_IF_ERROR(NormAndRotate(pass, layer.key_norm, s.kv_heads, {batch.position.data, all}, scratch.key));
  if (batch.append_rows > 0) {
    RETURN_IF_ERROR(AppendToPlane(pass, batch, scratch.key, planes.key(index), planes.rows));
    RETURN_IF_ERROR(AppendToPlane(pass, batch, scratch.value, planes.value(index), planes.rows));
  }
  RETURN_IF_ERROR(Attend(pass, index, batch, planes, max_context));
  return Linear(pass, Rows<const float>(scratch.attention, rows, s.query_width()), layer.output,
                scratch.added);
}

absl::Status Mlp(const ForwardPass& pass, const PlacedLayer& layer, int64_t rows) {
  const DFlashSettings& s = pass.settings;
  const Scratch& scratch = pass.scratch;
  const View2<const float> normed = Rows<const float>(scratch.normed, rows, s.hidden);
  RETURN_IF_ERROR(Linear(pass, normed, layer.gate, scratch.gate));
  RETURN_IF_ERROR(Linear(pass, normed, layer.up, scratch.up));
  const View2<float> gate = Rows(scratch.gate, rows, s.intermediate);
  RETURN_IF_ERROR(pass.kernels.silu_mul({.gate = Rows<const float>(gate.data, rows, s.intermediate),
                                         .up = Rows<const float>(scratch.up, rows, s.intermediate),
                                         .out = gate},
                                        pass.stream));
  return Linear(pass, Rows<const float>(gate.data, rows, s.intermediate), layer.down, scratch.added);
}

}  // namespace

absl::Status WriteContextLayer(const ForwardPass& pass, const PlacedLayer& layer, View2<const float> features,
                               View1<const int32_t> positions, float* key, float* value) {
  if (pass.settings.reading.context_through_input_norm) {
    RETURN_IF_ERROR(Norm(pass, features.data, layer.input_norm, features.rows, pass.scratch.normed));
    features.data = pass.scratch.normed;
  }
  RETURN_IF_ERROR(Linear(pass, features, layer.key, key));
  RETURN_IF_ERROR(Linear(pass, features, layer.value, value));
  return NormAndRotate(pass, layer.key_norm, pass.settings.kv_heads, positions, key);
}

absl::Status RunBlockLayer(const ForwardPass& pass, int64_t index, const PlacedLayer& layer,
                           const BlockBatch& batch, const ContextPlanes& planes, int64_t max_context) {
  const Scratch& scratch = pass.scratch;
  const int64_t rows = batch.streams * pass.settings.block;
  RETURN_IF_ERROR(Norm(pass, scratch.residual, layer.input_norm, rows, scratch.normed));
  RETURN_IF_ERROR(Attention(pass, index, layer, batch, planes, max_context));
  RETURN_IF_ERROR(AddToResidual(pass, rows));
  RETURN_IF_ERROR(Norm(pass, scratch.residual, layer.attention_norm, rows, scratch.normed));
  RETURN_IF_ERROR(Mlp(pass, layer, rows));
  return AddToResidual(pass, rows);
}

}  // namespace arborist::drafter
