#include "verifier/model/mla_attention.h"

#include "common/base/status_macros.h"

namespace arborist::verifier {
namespace {

View1<const int32_t> Positions(const StepBatchView& batch) { return {batch.position, batch.rows}; }

absl::Status Rotate(const RankContext& rank, const StepBatchView& batch, float* first, int64_t row_stride,
                    int64_t head_stride, int64_t heads) {
  return rank.kernels.rope({.x = first,
                            .row_stride = row_stride,
                            .head_stride = head_stride,
                            .heads = heads,
                            .position = Positions(batch),
                            .cosine = rank.rope.cosine(),
                            .sine = rank.rope.sine(),
                            .pairing = rank.meaning.rope_pairing},
                           rank.stream);
}

// Each key row [latent, normed | rope, rotated], once for all heads.
absl::Status AppendKeys(const RankContext& rank, const AttentionWeights& weights, const StepBatchView& batch,
                        View2<const float> normed, KvPlanes& planes, int layer) {
  const int64_t latent = rank.config.kv_lora_rank, width = rank.config.latent_row();
  const View2<float> kv = Scratch::Rows(rank.scratch.kv, batch.rows, width);
  RETURN_IF_ERROR(rank.kernels.linear({.x = normed, .weight = weights.kv_a, .out = kv}, rank.stream));
  const View2<float> compressed{kv.data, kv.rows, latent, width};
  RETURN_IF_ERROR(rank.kernels.rms_norm({.x = Const(compressed),
                                         .weight = weights.kv_a_norm,
                                         .out = compressed,
                                         .epsilon = rank.meaning.latent_epsilon},
                                        rank.stream));
  RETURN_IF_ERROR(Rotate(rank, batch, kv.data + latent, width, width, 1));
  const bool narrow = planes.shape().latent_type == DType::kBF16;
  return rank.kernels.kv_append({.rows = kv.data,
                                 .source_stride_bytes = width * static_cast<int64_t>(sizeof(float)),
                                 .slot = {batch.write_slot, batch.rows},
                                 .plane = planes.latent(layer),
                                 .slots = planes.slots(),
                                 .row_bytes = planes.plane_row_bytes()[layer],
                                 .narrow = narrow},
                                rank.stream);
}

// Each head's query in the space of the key rows: [W_UK^T q_nope | q_pe, rotated].
absl::Status MakeQueries(const RankContext& rank, const AttentionWeights& weights, const StepBatchView& batch,
                         View2<const float> normed) {
  const int64_t latent = rank.config.kv_lora_rank, width = rank.config.latent_row();
  const int64_t nope = rank.config.qk_nope_head_dim, heads = rank.plan.heads().count;
  View2<const float> source = normed;
  if (rank.config.q_lora_rank > 0) {
    const View2<float> q_latent = Scratch::Rows(rank.scratch.q_latent, batch.rows, rank.config.q_lora_rank);
    RETURN_IF_ERROR(rank.kernels.linear({.x = normed, .weight = weights.q_a, .out = q_latent}, rank.stream));
    RETURN_IF_ERROR(rank.kernels.rms_norm({.x = Const(q_latent),
                                           .weight = weights.q_a_norm,
                                           .out = q_latent,
                                           .epsilon = rank.meaning.latent_epsilon},
                                          rank.stream));
    source = Const(q_latent);
  }
  const View2<float> q_nope = Scratch::Rows(rank.scratch.q_nope, batch.rows, heads * nope);
  RETURN_IF_ERROR(rank.kernels.linear({.x = source, .weight = weights.q_nope, .out = q_nope}, rank.stream));
  float* query = rank.scratch.query;
  RETURN_IF_ERROR(rank.kernels.linear_per_head({.x = q_nope.data,
                                                .x_row_stride = heads * nope,
                                                .x_head_stride = nope,
                                                .weight = weights.w_uk,
                                                .out = query,
                                                .out_row_stride = heads * width,
                                                .out_head_stride = width,
                                                .tokens = batch.rows,
                                                .heads = heads,
                                                .outputs = latent},
                                               rank.stream));
  // All heads read the same input, so q_pe lands in its place without a copy.
  RETURN_IF_ERROR(rank.kernels.linear_per_head({.x = source.data,
                                                .x_row_stride = source.row_stride,
                                                .x_head_stride = 0,
                                                .weight = weights.q_pe,
                                                .out = query + latent,
                                                .out_row_stride = heads * width,
                                                .out_head_stride = width,
                                                .tokens = batch.rows,
                                                .heads = heads,
                                                .outputs = rank.config.qk_rope_head_dim},
                                               rank.stream));
  return Rotate(rank, batch, query + latent, heads * width, width, heads);
}

absl::Status Attend(const RankContext& rank, const StepBatchView& batch, KvPlanes& planes, int layer) {
  const int64_t latent = rank.config.kv_lora_rank, heads = rank.plan.heads().count;
  const kernels::TreeAttentionMlaArgs args{
      .query = {rank.scratch.query, batch.rows, heads, rank.config.latent_row()},
      .cache = planes.latent(layer),
      .cache_dtype = planes.shape().latent_type,
      .slots = planes.slots(),
      .latent = latent,
      .rope = rank.config.qk_rope_head_dim,
      .scale = rank.meaning.softmax_scale,
      .sequence = {batch.sequence, batch.rows},
      .page_table = {batch.page_table, batch.sequences, batch.pages_per_sequence, batch.pages_per_sequence},
      .prefix_blocks = {batch.prefix_blocks, batch.rows},
      .tail_slot = {batch.tail_slot, batch.rows, kernels::kMaxTailKeys, kernels::kMaxTailKeys},
      .tail_count = {batch.tail_count, batch.rows},
      .out = {rank.scratch.attended, batch.rows, heads, latent},
      .scratch = rank.scratch.attention};
  RETURN_IF_ERROR(rank.kernels.tree_attention_mla(args, rank.stream));
  return rank.observer == nullptr ? absl::OkStatus() : rank.observer->Attended(layer, args);
}

// Back from latent space to values, and out.
absl::Status Project(const RankContext& rank, const AttentionWeights& weights, const StepBatchView& batch,
                     View2<float> out) {
  const int64_t latent = rank.config.kv_lora_rank, heads = rank.plan.heads().count,
                v = rank.config.v_head_dim;
  const View2<float> values = Scratch::Rows(rank.scratch.values, batch.rows, heads * v);
  RETURN_IF_ERROR(rank.kernels.linear_per_head({.x = rank.scratch.attended,
                                                .x_row_stride = heads * latent,
                                                .x_head_stride = latent,
                                                .weight = weights.w_uv,
                                                .out = values.data,
                                                .out_row_stride = heads * v,
                                                .out_head_stride = v,
                                                .tokens = batch.rows,
                                                .heads = heads,
                                                .outputs = v},
                                               rank.stream));
  RETURN_IF_ERROR(rank.kernels.linear_row_parallel({.x = Const(values),
                                                    .weight = weights.o,
                                                    .out = out,
                                                    .full_inputs = rank.config.heads * v,
                                                    .first_segment = rank.plan.first_segment(),
                                                    .segment_count = rank.plan.segment_count()},
                                                   rank.stream));
  return SumOverRanks(rank, out);
}

}  // namespace

absl::Status MlaAttention(const RankContext& rank, const AttentionWeights& weights,
                          const StepBatchView& batch, View2<const float> normed, KvPlanes& planes, int layer,
                          View2<float> out) {
  RETURN_IF_ERROR(AppendKeys(rank, weights, batch, normed, planes, layer));
  RETURN_IF_ERROR(MakeQueries(rank, weights, batch, normed));
  RETURN_IF_ERROR(Attend(rank, batch, planes, layer));
  return Project(rank, weights, batch, out);
}

}  // namespace arborist::verifier
