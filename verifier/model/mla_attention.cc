#include "verifier/model/mla_attention.h"

#include "absl/status/statusor.h"
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

// What a row is compressed to.
struct Compressed {
  View2<float> query;  // [rows, q rank], columns 0 without q_lora
  View2<float> key;    // [rows, latent + rope]
};

absl::StatusOr<Compressed> Compress(const RankContext& rank, const AttentionWeights& weights,
                                    View2<const float> normed) {
  const int64_t q_rank = rank.config.q_lora_rank, width = rank.config.latent_row();
  const View2<float> both = Scratch::Rows(rank.scratch.compressed, normed.rows, q_rank + width);
  const Compressed parts{.query = {both.data, both.rows, q_rank, both.columns},
                         .key = {both.data + q_rank, both.rows, width, both.columns}};
  if (weights.q_and_kv_a.rows > 0) {
    RETURN_IF_ERROR(
        rank.kernels.linear({.x = normed, .weight = weights.q_and_kv_a, .out = both}, rank.stream));
    return parts;
  }
  RETURN_IF_ERROR(rank.kernels.linear({.x = normed, .weight = weights.kv_a, .out = parts.key}, rank.stream));
  if (q_rank > 0) {
    RETURN_IF_ERROR(
        rank.kernels.linear({.x = normed, .weight = weights.q_a, .out = parts.query}, rank.stream));
  }
  return parts;
}

// Norms the query latent; each key row becomes [latent, normed | rope, rotated], once for all heads, in the
// cache.
absl::Status AppendKeys(const RankContext& rank, const AttentionWeights& weights, const StepBatchView& batch,
                        const Compressed& compressed, KvPlanes& planes, int layer) {
  return rank.kernels.mla_latents({.query = compressed.query,
                                   .query_norm = weights.q_a_norm,
                                   .key = compressed.key,
                                   .key_norm = weights.kv_a_norm,
                                   .epsilon = rank.meaning.latent_epsilon,
                                   .position = Positions(batch),
                                   .cosine = rank.rope.cosine(),
                                   .sine = rank.rope.sine(),
                                   .pairing = rank.meaning.rope_pairing,
                                   .slot = {batch.write_slot, batch.rows},
                                   .plane = planes.latent(layer),
                                   .plane_dtype = planes.shape().latent_type,
                                   .slots = planes.slots()},
                                  rank.stream);
}

// Each head's query in the space of the key rows: [W_UK^T q_nope | q_pe, rotated].
absl::Status MakeQueries(const RankContext& rank, const AttentionWeights& weights, const StepBatchView& batch,
                         View2<const float> source) {
  const int64_t latent = rank.config.kv_lora_rank, width = rank.config.latent_row();
  const int64_t nope = rank.config.qk_nope_head_dim, heads = rank.plan.heads().count;
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
  return rank.kernels.tree_attention_mla(
      {.query = {rank.scratch.query, batch.rows, heads, rank.config.latent_row()},
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
       .scratch = rank.scratch.attention},
      rank.stream);
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
  ASSIGN_OR_RETURN(const Compressed compressed, Compress(rank, weights, normed));
  RETURN_IF_ERROR(AppendKeys(rank, weights, batch, compressed, planes, layer));
  RETURN_IF_ERROR(
      MakeQueries(rank, weights, batch, compressed.query.columns > 0 ? Const(compressed.query) : normed));
  RETURN_IF_ERROR(Attend(rank, batch, planes, layer));
  return Project(rank, weights, batch, out);
}

}  // namespace arborist::verifier
