#include "drafter/model/dflash_layer.h"

#include "absl/status/statusor.h"
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

// Keys and values of rows before norm and rotation: one product where the matrices lie together, else two
// into the given places.
struct KeyValueRows {
  View2<const float> key, value;
};
absl::StatusOr<KeyValueRows> ProjectKeysAndValues(const ForwardPass& pass, const PlacedLayer& layer,
                                                  View2<const float> x, float* key, float* value) {
  const int64_t width = pass.settings.kv_width();
  if (layer.key_value.data == nullptr) {
    RETURN_IF_ERROR(Linear(pass, x, layer.key, key));
    RETURN_IF_ERROR(Linear(pass, x, layer.value, value));
    return KeyValueRows{Rows<const float>(key, x.rows, width), Rows<const float>(value, x.rows, width)};
  }
  float* both = pass.scratch.key_value;
  RETURN_IF_ERROR(Linear(pass, x, layer.key_value, both));
  return KeyValueRows{{both, x.rows, width, 2 * width}, {both + width, x.rows, width, 2 * width}};
}

// What all calls of gqa_heads have in common.
kernels::GqaHeadsArgs HeadsOf(const ForwardPass& pass, const PlacedLayer& layer, const KeyValueRows& rows,
                              View1<const int32_t> positions) {
  const DFlashSettings& s = pass.settings;
  kernels::GqaHeadsArgs args;
  args.key_in = rows.key;
  args.value_in = rows.value;
  if (s.reading.query_key_norm) {
    args.query_norm = layer.query_norm;
    args.key_norm = layer.key_norm;
  }
  args.epsilon = s.epsilon;
  args.position = positions;
  args.cosine = pass.cosine;
  args.sine = pass.sine;
  args.pairing = s.reading.pairing;
  return args;
}

// What attention or MLP adds, and the norm of what reads the sum.
absl::Status AddToResidual(const ForwardPass& pass, int64_t rows, View1<const float> norm) {
  const int64_t hidden = pass.settings.hidden;
  const View2<const float> added = Rows<const float>(pass.scratch.added, rows, hidden);
  const View2<float> residual = Rows(pass.scratch.residual, rows, hidden);
  if (norm.size == 0) {
    return pass.kernels.add_rows({.from = added, .into = residual}, pass.stream);
  }
  return pass.kernels.add_rms_norm({.from = added,
                                    .into = residual,
                                    .weight = norm,
                                    .out = Rows(pass.scratch.normed, rows, hidden),
                                    .epsilon = pass.settings.epsilon},
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
  const View2<const float> normed = Rows<const float>(scratch.normed, rows, s.hidden);
  RETURN_IF_ERROR(Linear(pass, normed, layer.query, scratch.query));
  ASSIGN_OR_RETURN(const KeyValueRows projected,
                   ProjectKeysAndValues(pass, layer, Rows<const float>(scratch.normed, all, s.hidden),
                                        scratch.key, scratch.value));
  kernels::GqaHeadsArgs heads = HeadsOf(pass, layer, projected, {batch.position.data, all});
  heads.query_in = Rows<const float>(scratch.query, rows, s.query_width());
  heads.query = {scratch.query, rows, s.heads, s.head_dim};
  heads.key = {scratch.key, rows, s.kv_heads, s.head_dim};
  heads.value = {scratch.value, rows, s.kv_heads, s.head_dim};
  // Rows behind the blocks' are the context's.
  heads.slot = {batch.append_slot.data, batch.append_rows};
  heads.key_plane = planes.key(index);
  heads.value_plane = planes.value(index);
  heads.plane_rows = planes.rows;
  RETURN_IF_ERROR(pass.kernels.gqa_heads(heads, pass.stream));
  RETURN_IF_ERROR(Attend(pass, index, batch, planes, max_context));
  return Linear(pass, Rows<const float>(scratch.attention, rows, s.query_width()), layer.output,
                scratch.added);
}

absl::Status Mlp(const ForwardPass& pass, const PlacedLayer& layer, int64_t rows) {
  const DFlashSettings& s = pass.settings;
  const Scratch& scratch = pass.scratch;
  const View2<const float> normed = Rows<const float>(scratch.normed, rows, s.hidden);
  View2<float> gate = Rows(scratch.gate, rows, s.intermediate);
  View2<const float> up = Rows<const float>(scratch.up, rows, s.intermediate);
  if (layer.gate_up.data != nullptr) {
    RETURN_IF_ERROR(Linear(pass, normed, layer.gate_up, scratch.gate));
    gate.row_stride = up.row_stride = 2 * s.intermediate;
    up.data = scratch.gate + s.intermediate;
  } else {
    RETURN_IF_ERROR(Linear(pass, normed, layer.gate, scratch.gate));
    RETURN_IF_ERROR(Linear(pass, normed, layer.up, scratch.up));
  }
  const View2<const float> gated{gate.data, gate.rows, gate.columns, gate.row_stride};
  RETURN_IF_ERROR(pass.kernels.silu_mul({.gate = gated, .up = up, .out = gate}, pass.stream));
  return Linear(pass, gated, layer.down, scratch.added);
}

}  // namespace

absl::Status WriteContextLayer(const ForwardPass& pass, const PlacedLayer& layer, View2<const float> features,
                               View1<const int32_t> positions, float* key, float* value) {
  if (pass.settings.reading.context_through_input_norm) {
    RETURN_IF_ERROR(Norm(pass, features.data, layer.input_norm, features.rows, pass.scratch.normed));
    features.data = pass.scratch.normed;
  }
  ASSIGN_OR_RETURN(const KeyValueRows projected, ProjectKeysAndValues(pass, layer, features, key, value));
  const DFlashSettings& s = pass.settings;
  kernels::GqaHeadsArgs heads = HeadsOf(pass, layer, projected, positions);
  heads.key = {key, features.rows, s.kv_heads, s.head_dim};
  heads.value = {value, features.rows, s.kv_heads, s.head_dim};
  return pass.kernels.gqa_heads(heads, pass.stream);
}

absl::Status RunBlockLayer(const ForwardPass& pass, int64_t index, const PlacedLayer& layer,
                           View1<const float> next_norm, const BlockBatch& batch, const ContextPlanes& planes,
                           int64_t max_context) {
  const int64_t rows = batch.streams * pass.settings.block;
  RETURN_IF_ERROR(Attention(pass, index, layer, batch, planes, max_context));
  RETURN_IF_ERROR(AddToResidual(pass, rows, layer.attention_norm));
  RETURN_IF_ERROR(Mlp(pass, layer, rows));
  return AddToResidual(pass, rows, next_norm);
}

}  // namespace arborist::drafter
