#include "verifier/model/model_weights.h"

#include <cstring>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace arborist::verifier {
namespace {

using kernels::ExpertWeights;

// Reading every byte to look for NaN is cheap for a model that fits the page cache; beyond this it would add
// minutes to the start of a large one.
constexpr size_t kMaxBytesCheckedForFinite = size_t{8} << 30;

// Fills attention weights: cuts per-head blocks of rows into contiguous matrices.
class AttentionLoader {
 public:
  AttentionLoader(const ModelConfig& config, const ShardPlan& plan, TensorReader& reader, std::string prefix)
      : config_(config), heads_(plan.heads()), plan_(plan), reader_(reader), prefix_(std::move(prefix)) {}

  absl::StatusOr<AttentionWeights> Load() {
    const int64_t hidden = config_.hidden_size;
    AttentionWeights weights;
    RETURN_IF_ERROR(LoadQuery(weights));
    ASSIGN_OR_RETURN(weights.kv_a,
                     reader_.Matrix(prefix_ + "kv_a_proj_with_mqa.weight", config_.latent_row(), hidden));
    ASSIGN_OR_RETURN(weights.kv_a_norm,
                     reader_.Vector(prefix_ + "kv_a_layernorm.weight", config_.kv_lora_rank));
    RETURN_IF_ERROR(LoadKeyValue(weights));
    const int64_t inputs = config_.heads * config_.v_head_dim;
    ASSIGN_OR_RETURN(weights.o,
                     reader_.Columns(prefix_ + "o_proj.weight", hidden, inputs, plan_.Inputs(inputs)));
    return weights;
  }

 private:
  absl::Status LoadQuery(AttentionWeights& weights) {
    const int64_t nope = config_.qk_nope_head_dim, rope = config_.qk_rope_head_dim;
    std::string name = "q_proj.weight";
    int64_t inputs = config_.hidden_size;
    if (config_.q_lora_rank > 0) {
      name = "q_b_proj.weight";
      inputs = config_.q_lora_rank;
      ASSIGN_OR_RETURN(weights.q_a, reader_.Matrix(prefix_ + "q_a_proj.weight", inputs, config_.hidden_size));
      ASSIGN_OR_RETURN(weights.q_a_norm, reader_.Vector(prefix_ + "q_a_layernorm.weight", inputs));
    }
    ASSIGN_OR_RETURN(const WeightView q,
                     reader_.Matrix(prefix_ + name, config_.heads * (nope + rope), inputs));
    weights.q_nope = RowsOfHeads(q, nope + rope, 0, nope);
    weights.q_pe = RowsOfHeads(q, nope + rope, nope, rope);
    return absl::OkStatus();
  }

  absl::Status LoadKeyValue(AttentionWeights& weights) {
    const int64_t nope = config_.qk_nope_head_dim, v = config_.v_head_dim;
    ASSIGN_OR_RETURN(const WeightView kv_b, reader_.Matrix(prefix_ + "kv_b_proj.weight",
                                                           config_.heads * (nope + v), config_.kv_lora_rank));
    weights.w_uk = TransposeOfHeads(RowsOfHeads(kv_b, nope + v, 0, nope), nope);
    weights.w_uv = RowsOfHeads(kv_b, nope + v, nope, v);
    return absl::OkStatus();
  }

  // Rows [first, first + count) of the `per_head` rows of each of this rank's heads.
  WeightView RowsOfHeads(const WeightView& matrix, int64_t per_head, int64_t first, int64_t count) {
    const size_t row_bytes = static_cast<size_t>(matrix.columns) * ByteSize(matrix.dtype);
    std::byte* copy = reader_.Allocate(static_cast<size_t>(heads_.count * count) * row_bytes);
    for (int64_t head = 0; head < heads_.count; ++head) {
      std::memcpy(copy + static_cast<size_t>(head * count) * row_bytes,
                  RowOf(matrix, (heads_.begin + head) * per_head + first),
                  static_cast<size_t>(count) * row_bytes);
    }
    return {copy, matrix.dtype, heads_.count * count, matrix.columns};
  }

  // [heads * rows, columns] -> [heads * columns, rows], head by head, bytes unchanged.
  WeightView TransposeOfHeads(const WeightView& matrix, int64_t rows) {
    const size_t element = ByteSize(matrix.dtype);
    const int64_t columns = matrix.columns;
    std::byte* copy = reader_.Allocate(static_cast<size_t>(matrix.rows * columns) * element);
    for (int64_t head = 0; head < heads_.count; ++head) {
      for (int64_t row = 0; row < rows; ++row) {
        const std::byte* from = RowOf(matrix, head * rows + row);
        for (int64_t column = 0; column < columns; ++column) {
          std::memcpy(copy + static_cast<size_t>((head * columns + column) * rows + row) * element,
                      from + static_cast<size_t>(column) * element, element);
        }
      }
    }
    return {copy, matrix.dtype, heads_.count * columns, rows};
  }

  const ModelConfig& config_;
  const ShardPlan::Range heads_;
  const ShardPlan& plan_;
  TensorReader& reader_;
  const std::string prefix_;
};

absl::StatusOr<ExpertWeights> LoadMlp(TensorReader& reader, const std::string& prefix, int64_t hidden,
                                      int64_t width, const ShardPlan& plan) {
  const ShardPlan::Range range = plan.Inputs(width);
  ExpertWeights mlp;
  ASSIGN_OR_RETURN(mlp.gate, reader.Rows(prefix + "gate_proj.weight", width, hidden, range));
  ASSIGN_OR_RETURN(mlp.up, reader.Rows(prefix + "up_proj.weight", width, hidden, range));
  ASSIGN_OR_RETURN(mlp.down, reader.Columns(prefix + "down_proj.weight", hidden, width, range));
  return mlp;
}

absl::Status LoadMoe(const ModelConfig& config, const ShardPlan& plan, TensorReader& reader,
                     const std::string& prefix, LayerWeights& layer) {
  ASSIGN_OR_RETURN(layer.router,
                   reader.Matrix(prefix + "gate.weight", config.routed_experts, config.hidden_size));
  if (config.route_method == RouteMethod::kNoauxTc) {
    ASSIGN_OR_RETURN(layer.router_bias,
                     reader.Vector(prefix + "gate.e_score_correction_bias", config.routed_experts));
  }
  layer.experts.reserve(static_cast<size_t>(config.routed_experts));
  for (int64_t expert = 0; expert < config.routed_experts; ++expert) {
    ASSIGN_OR_RETURN(const ExpertWeights weights,
                     LoadMlp(reader, absl::StrCat(prefix, "experts.", expert, "."), config.hidden_size,
                             config.moe_intermediate_size, plan));
    layer.experts.push_back(weights);
  }
  layer.expert_table = {layer.experts.data(), config.routed_experts};
  if (config.shared_experts > 0) {
    ASSIGN_OR_RETURN(layer.shared, LoadMlp(reader, prefix + "shared_experts.", config.hidden_size,
                                           config.shared_width(), plan));
  }
  return absl::OkStatus();
}

absl::StatusOr<LayerWeights> LoadLayer(const ModelConfig& config, const ShardPlan& plan, TensorReader& reader,
                                       int index) {
  const std::string prefix = absl::StrCat("model.layers.", index, ".");
  LayerWeights layer;
  ASSIGN_OR_RETURN(layer.input_norm, reader.Vector(prefix + "input_layernorm.weight", config.hidden_size));
  ASSIGN_OR_RETURN(layer.post_attention_norm,
                   reader.Vector(prefix + "post_attention_layernorm.weight", config.hidden_size));
  ASSIGN_OR_RETURN(layer.attention, AttentionLoader(config, plan, reader, prefix + "self_attn.").Load());
  layer.is_moe = config.IsMoe(index);
  if (layer.is_moe) {
    RETURN_IF_ERROR(LoadMoe(config, plan, reader, prefix + "mlp.", layer));
  } else {
    ASSIGN_OR_RETURN(layer.dense,
                     LoadMlp(reader, prefix + "mlp.", config.hidden_size, config.intermediate_size, plan));
  }
  return layer;
}

// A bias or a scale beside a weight would change its meaning: better refused than ignored.
absl::Status RefuseCompanions(const Checkpoint& checkpoint, const ModelConfig& config) {
  const std::string layers = config.tensor_prefix + "model.layers.";
  for (const std::string& name : checkpoint.Names()) {
    if (!absl::StartsWith(name, layers) || std::atoi(name.c_str() + layers.size()) >= config.layers) {
      continue;
    }
    for (const char* ending : {".bias", ".weight_scale", ".weight_scale_inv", ".weight_packed"}) {
      if (absl::EndsWith(name, ending)) {
        return absl::InvalidArgumentError(
            absl::StrCat(checkpoint.directory(), ": tensor ", name,
                         ": not supported, expected plain bf16, f16 or f32 weights without biases"));
      }
    }
  }
  return absl::OkStatus();
}

// After loading. Layers that the config does not have would be a model cut short, what a layer has beyond its
// own a model of another kind: better refused than ignored. Layers that predict tokens further ahead come
// behind the model's own, each with an eh_proj, and may be ignored.
absl::Status RefuseUnused(const TensorReader& reader, const ModelConfig& config) {
  const Checkpoint& checkpoint = reader.checkpoint();
  const std::string layers = config.tensor_prefix + "model.layers.";
  for (const std::string& name : checkpoint.Names()) {
    if (!absl::StartsWith(name, layers) || reader.Used(name) || absl::EndsWith(name, "rotary_emb.inv_freq")) {
      continue;
    }
    const int64_t layer = std::atoll(name.c_str() + layers.size());
    const bool own = layer < config.layers;
    if (own || !checkpoint.Has(absl::StrCat(layers, layer, ".eh_proj.weight"))) {
      return absl::InvalidArgumentError(absl::StrCat(
          checkpoint.directory(), ": tensor ", name, ": unknown, expected only ",
          own ? "tensors of the layer that config.json says"
              : absl::StrCat("layers in [0, ", config.layers, "), as config.json's num_hidden_layers says")));
    }
  }
  return absl::OkStatus();
}

size_t TotalBytes(const Checkpoint& checkpoint) {
  size_t total = 0;
  for (const std::string& name : checkpoint.Names()) {
    const absl::StatusOr<TensorView> tensor = checkpoint.Find(name);
    total += tensor.ok() ? tensor->bytes : 0;
  }
  return total;
}

}  // namespace

absl::StatusOr<ModelWeights> LoadModelWeights(const std::string& directory, const ModelConfig& config,
                                              const ShardPlan& plan) {
  ASSIGN_OR_RETURN(Checkpoint checkpoint, Checkpoint::Open(directory));
  RETURN_IF_ERROR(RefuseCompanions(checkpoint, config));
  const bool check_finite = TotalBytes(checkpoint) <= kMaxBytesCheckedForFinite;
  ModelWeights weights;
  weights.reader = std::make_unique<TensorReader>(std::move(checkpoint), config.tensor_prefix, check_finite);
  TensorReader& reader = *weights.reader;
  const int64_t vocabulary = config.vocab_size, hidden = config.hidden_size;
  ASSIGN_OR_RETURN(weights.embedding, reader.Matrix("model.embed_tokens.weight", vocabulary, hidden));
  ASSIGN_OR_RETURN(weights.norm, reader.Vector("model.norm.weight", hidden));
  const std::string head = config.tie_word_embeddings ? "model.embed_tokens.weight" : "lm_head.weight";
  ASSIGN_OR_RETURN(weights.head, reader.Rows(head, vocabulary, hidden, plan.vocabulary()));
  weights.layers.reserve(static_cast<size_t>(config.layers));
  for (int index = 0; index < config.layers; ++index) {
    ASSIGN_OR_RETURN(LayerWeights layer, LoadLayer(config, plan, reader, index));
    weights.layers.push_back(std::move(layer));
  }
  RETURN_IF_ERROR(RefuseUnused(reader, config));
  return weights;
}

}  // namespace arborist::verifier
