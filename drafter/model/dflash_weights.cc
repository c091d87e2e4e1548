#include "drafter/model/dflash_weights.h"

#include <filesystem>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/json/json.h"
#include "common/projection/checked_tensor.h"
#include "common/projection/projection.h"

namespace arborist::drafter {
namespace {

// Finds tensors under one prefix and remembers which were used.
class Reader {
 public:
  Reader(const Checkpoint& checkpoint, std::string prefix)
      : checkpoint_(checkpoint), prefix_(std::move(prefix)) {}

  absl::Status Matrix(const std::string& name, int64_t rows, int64_t columns, WeightView& out) {
    used_.insert(prefix_ + name);
    ASSIGN_OR_RETURN(out, FindFiniteMatrix(checkpoint_, prefix_ + name, rows, columns));
    return absl::OkStatus();
  }
  absl::Status Vector(const std::string& name, int64_t size, std::vector<float>& out) {
    used_.insert(prefix_ + name);
    ASSIGN_OR_RETURN(out, ReadVector(checkpoint_, prefix_ + name, size));
    return absl::OkStatus();
  }
  void Skip(const std::string& name) { used_.insert(prefix_ + name); }

  absl::Status AllUsed() const {
    for (const std::string& name : checkpoint_.Names()) {
      if (!used_.contains(name) && !absl::EndsWith(name, "rotary_emb.inv_freq")) {
        return absl::InvalidArgumentError(
            absl::StrCat(checkpoint_.directory(), ": tensor ", name,
                         ": unknown, expected only the tensors of a DFlash drafter "
                         "(embedding and head are the target's)"));
      }
    }
    return absl::OkStatus();
  }

 private:
  const Checkpoint& checkpoint_;
  std::string prefix_;
  std::set<std::string> used_;
};

absl::Status LoadLayer(Reader& reader, int64_t index, const DFlashSettings& s, DFlashLayerWeights& layer) {
  const std::string p = absl::StrCat("layers.", index, ".");
  const std::string a = p + "self_attn.";
  RETURN_IF_ERROR(reader.Vector(p + "input_layernorm.weight", s.hidden, layer.input_norm));
  RETURN_IF_ERROR(reader.Vector(p + "post_attention_layernorm.weight", s.hidden, layer.attention_norm));
  RETURN_IF_ERROR(reader.Vector(a + "q_norm.weight", s.head_dim, layer.query_norm));
  RETURN_IF_ERROR(reader.Vector(a + "k_norm.weight", s.head_dim, layer.key_norm));
  RETURN_IF_ERROR(reader.Matrix(a + "q_proj.weight", s.query_width(), s.hidden, layer.query));
  RETURN_IF_ERROR(reader.Matrix(a + "k_proj.weight", s.kv_width(), s.hidden, layer.key));
  RETURN_IF_ERROR(reader.Matrix(a + "v_proj.weight", s.kv_width(), s.hidden, layer.value));
  RETURN_IF_ERROR(reader.Matrix(a + "o_proj.weight", s.hidden, s.query_width(), layer.output));
  RETURN_IF_ERROR(reader.Matrix(p + "mlp.gate_proj.weight", s.intermediate, s.hidden, layer.gate));
  RETURN_IF_ERROR(reader.Matrix(p + "mlp.up_proj.weight", s.intermediate, s.hidden, layer.up));
  return reader.Matrix(p + "mlp.down_proj.weight", s.hidden, s.intermediate, layer.down);
}

absl::Status RefuseMaskEmbeddingFile(const std::string& directory) {
  for (const char* name : {"mask_embedding.pt", "mask_embedding.safetensors"}) {
    std::error_code error;
    if (std::filesystem::exists(absl::StrCat(directory, "/", name), error)) {
      return absl::InvalidArgumentError(
          absl::StrCat(directory, "/", name,
                       ": a mask embedding of its own is not supported, expected the mask token's row of the "
                       "target's embedding to be used"));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<bool> HeadIsTied(const std::string& target_directory) {
  ASSIGN_OR_RETURN(const JsonObject config, ReadJson(absl::StrCat(target_directory, "/config.json")));
  if (config.Has("text_config")) {
    ASSIGN_OR_RETURN(const JsonObject text, config.Object("text_config"));
    return text.BoolOr("tie_word_embeddings", false);
  }
  return config.BoolOr("tie_word_embeddings", false);
}

}  // namespace

absl::Status LoadDrafterTensors(const Checkpoint& drafter, const DFlashSettings& settings,
                                DFlashWeights& weights) {
  RETURN_IF_ERROR(RefuseMaskEmbeddingFile(drafter.directory()));
  ASSIGN_OR_RETURN(const std::string prefix, DrafterPrefix(drafter));
  Reader reader(drafter, prefix);
  reader.Skip("fc.weight");  // the projection's, computed in the verifier
  reader.Skip("hidden_norm.weight");
  weights.layers.resize(settings.layers.size());
  for (size_t i = 0; i < weights.layers.size(); ++i) {
    RETURN_IF_ERROR(LoadLayer(reader, static_cast<int64_t>(i), settings, weights.layers[i]));
  }
  RETURN_IF_ERROR(reader.Vector("norm.weight", settings.hidden, weights.final_norm));
  return reader.AllUsed();
}

absl::Status LoadTargetTensors(const Checkpoint& target, const DFlashSettings& settings,
                               DFlashWeights& weights) {
  ASSIGN_OR_RETURN(const bool tied, HeadIsTied(target.directory()));
  const std::string prefix = target.Has("model.embed_tokens.weight") ? "" : "language_model.";
  // Whether their elements are finite is the verifier's to say: the target may be larger than this memory.
  const auto find = [&](const char* name) {
    return FindMatrix(target, prefix + name, settings.vocabulary, settings.hidden);
  };
  ASSIGN_OR_RETURN(weights.embedding, find("model.embed_tokens.weight"));
  weights.head = weights.embedding;
  if (!tied) {
    ASSIGN_OR_RETURN(weights.head, find("lm_head.weight"));
  }
  return absl::OkStatus();
}

}  // namespace arborist::drafter
