#include "verifier/model/mla_attention.h"

#include "absl/status/statusor.h"
#include "common/base/status_macros.h"

namespace arborist::verifier {
namespace {

View1<const int32_t> Positions(const StepBatchView& batch) { return {batch.position, batch.rows}; }

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

// q_nope [rows, H * nope] and q_pe [rows, H * rope], side by side.
struct QueryParts {
  View2<float> nope;
  View2<float> pe;
};

absl::StatusOr<QueryParts> Expand(const RankContext& rank, const AttentionWeights& weights,
                                  View2<const float> source) {
  const int64_t heads = rank.plan.heads().count, nope = heads * rank.config.qk_nope_head_dim,
                rope = heads * rank.config.qk_rope_head_dim;
  const View2<float> both = Scratch::Rows(rank.scratch.q_parts, source.rows, nope + rope);
  const QueryParts parts{.nope = {both.data, both.rows, nope, both.columns},
                         .pe = {both.data + nope, both.rows, rope, both.columns}};
  if (weights.q_b.rows > 0) {
    RETURN_IF_ERROR(rank.kernels.linear({.x = source, .weight = weights.q_b, .out = both}, rank.stream));
    return parts;
  }
  RETURN_IF_ERROR(
      rank.kernels.linear({.x = source, .weight = weights.q_nope, .out = parts.nope}, rank.stream));
  RETURN_IF_ERROR(rank.kernels.linear({.x = source, .weight = weights.q_pe, .out = parts.pe}, rank.stream));
  return parts;
}

// Each head's query in the space of the key rows: [W_UK^T q_nope | q_pe, rotated].
absl::Status MakeQueries(const RankContext& rank, const AttentionWeights& weights, const StepBatchView& batch,
                         View2<const float> source) {
  const int64_t latent = rank.config.kv_lora_rank, width = rank.config.latent_row();
  const int64_t heads = rank.plan.heads().count;
  float* query = rank.scratch.query;
  ASSIGN_OR_RETURN(const QueryParts parts, Expand(rank, weights, source));
  RETURN_IF_ERROR(rank.kernels.rope({.x = query + latent,
                                     .row_stride = heads * width,
                                     .head_stride = width,
                                     .heads = heads,
                                     .position = Positions(batch),
                                     .cosine = rank.rope.cosine(),
                                     .sine = rank.rope.sine(),
                                     .pairing = rank.meaning.rope_pairing,
                                     .from = parts.pe.data,
                                     .from_row_stride = parts.pe.row_stride,
                                     .from_head_stride = rank.config.qk_rope_head_dim},
                                    rank.stream));
  return rank.kernels.linear_per_head({.x = parts.nope.data,
                                       .x_row_stride = parts.nope.row_stride,
                                       .x_head_stride = rank.config.qk_nope_head_dim,
                                       .weight = weights.w_uk,
                                       .out = query,
                                       .out_row_stride = heads * width,
                                       .out_head_stride = width,
                                       .tokens = batch.rows,
                                       .heads = heads,
                                       .outputs = latent},
                                      rank.stream);
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
  ASSIGN_OR_RETURN(const Compressed compressed, Compress(rank, weights, normed));
  RETURN_IF_ERROR(AppendKeys(rank, weights, batch, compressed, planes, layer));
  RETURN_IF_ERROR(
      MakeQueries(rank, weights, batch, compressed.query.columns > 0 ? Const(compressed.query) : normed));
  RETURN_IF_ERROR(Attend(rank, batch, planes, layer));
  return Project(rank, weights, batch, out);
}

}  // namespace arborist::verifier
