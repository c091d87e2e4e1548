#include "tests/support/random_checkpoint.h"

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>
#include <vector>

#include "common/base/check.h"
#include "common/tensor/dtype.h"

namespace arborist::tests {
namespace {

// Collects named bf16 tensors and writes them as one safetensors file.
class Writer {
 public:
  explicit Writer(uint64_t seed) : random_(seed) {}

  // Normal values of standard deviation `scale` around `mean`.
  void Add(const std::string& name, std::vector<int64_t> shape, float scale, float mean = 0.0f) {
    int64_t count = 1;
    std::string dimensions;
    for (const int64_t size : shape) {
      count *= size;
      dimensions += (dimensions.empty() ? "" : ",") + std::to_string(size);
    }
    const size_t begin = data_.size();
    std::normal_distribution<float> normal(mean, scale);
    for (int64_t i = 0; i < count; ++i) {
      const uint16_t bits = ToBFloat16(normal(random_)).bits;
      data_.push_back(static_cast<char>(bits & 0xff));
      data_.push_back(static_cast<char>(bits >> 8));
    }
    header_ += (header_.empty() ? "" : ",") + ("\"" + name + R"(":{"dtype":"BF16","shape":[)" + dimensions) +
               "],\"data_offsets\":[" + std::to_string(begin) + "," + std::to_string(data_.size()) + "]}";
  }

  void Matrix(const std::string& name, int64_t outputs, int64_t inputs, float gain) {
    Add(name, {outputs, inputs}, gain / std::sqrt(static_cast<float>(inputs)));
  }

  void Norm(const std::string& name, int64_t channels) { Add(name, {channels}, 0.1f, 1.0f); }

  void Write(const std::string& path) const {
    std::string header = "{" + header_ + "}";
    header.resize((header.size() + 7) / 8 * 8, ' ');
    const uint64_t size = header.size();
    char prefix[8];
    std::memcpy(prefix, &size, 8);
    std::ofstream file(path, std::ios::binary);
    file.write(prefix, 8);
    file << header;
    file.write(data_.data(), static_cast<std::streamsize>(data_.size()));
    Check(file.good(), "a test checkpoint can be written");
  }

 private:
  std::mt19937_64 random_;
  std::string header_;
  std::vector<char> data_;
};

void WriteText(const std::string& path, const std::string& text) {
  std::ofstream file(path);
  file << text;
  Check(file.good(), "a test config can be written");
}

constexpr char kTargetConfig[] = R"({
 "architectures": ["DeepseekV3ForCausalLM"], "model_type": "deepseek_v3", "vocab_size": 96, "hidden_size": 32,
 "num_hidden_layers": 3, "first_k_dense_replace": 1, "moe_layer_freq": 1, "intermediate_size": 48,
 "n_routed_experts": 6, "num_experts_per_tok": 2, "n_shared_experts": 1, "moe_intermediate_size": 16,
 "n_group": 1, "topk_group": 1, "topk_method": "noaux_tc", "scoring_func": "sigmoid", "norm_topk_prob": true,
 "routed_scaling_factor": 2.0, "num_attention_heads": 2, "num_key_value_heads": 2, "q_lora_rank": 24,
 "kv_lora_rank": 16, "qk_nope_head_dim": 8, "qk_rope_head_dim": 8, "v_head_dim": 8, "hidden_act": "silu",
 "rms_norm_eps": 1e-06, "attention_bias": false, "tie_word_embeddings": false, "rope_theta": 10000.0,
 "max_position_embeddings": 4096, "rope_scaling": null, "num_nextn_predict_layers": 0, "torch_dtype": "bfloat16"
})";

constexpr char kDrafterConfig[] = R"({
 "architectures": ["DFlashDraftModel"], "model_type": "qwen3", "vocab_size": 96, "hidden_size": 32,
 "num_hidden_layers": 2, "intermediate_size": 48, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8,
 "hidden_act": "silu", "rms_norm_eps": 1e-06, "attention_bias": false, "rope_theta": 10000.0, "rope_scaling": null,
 "max_position_embeddings": 4096, "layer_types": ["full_attention", "full_attention"], "sliding_window": null,
 "use_sliding_window": false, "tie_word_embeddings": false, "block_size": 8, "num_target_layers": 3,
 "dflash_config": {"mask_token_id": 95, "target_layer_ids": [0, 1]}, "torch_dtype": "bfloat16"
})";

void AddMlp(Writer& writer, const std::string& prefix, int64_t width) {
  writer.Matrix(prefix + "gate_proj.weight", width, 32, 1.0f);
  writer.Matrix(prefix + "up_proj.weight", width, 32, 1.0f);
  writer.Matrix(prefix + "down_proj.weight", 32, width, 1.5f);
}

}  // namespace

void WriteRandomTarget(const std::string& directory, uint64_t seed) {
  std::filesystem::create_directories(directory);
  WriteText(directory + "/config.json", kTargetConfig);
  WriteText(directory + "/generation_config.json", "{}");
  Writer writer(seed);
  writer.Matrix("model.embed_tokens.weight", kRandomTargetVocabulary, 32, 6.0f);
  for (int layer = 0; layer < 3; ++layer) {
    const std::string prefix = "model.layers." + std::to_string(layer) + ".";
    writer.Norm(prefix + "input_layernorm.weight", 32);
    writer.Norm(prefix + "post_attention_layernorm.weight", 32);
    const std::string attention = prefix + "self_attn.";
    writer.Matrix(attention + "q_a_proj.weight", 24, 32, 1.0f);
    writer.Norm(attention + "q_a_layernorm.weight", 24);
    writer.Matrix(attention + "q_b_proj.weight", 2 * 16, 24, 2.0f);
    writer.Matrix(attention + "kv_a_proj_with_mqa.weight", 24, 32, 1.0f);
    writer.Norm(attention + "kv_a_layernorm.weight", 16);
    writer.Matrix(attention + "kv_b_proj.weight", 2 * 16, 16, 1.0f);
    writer.Matrix(attention + "o_proj.weight", 32, 16, 2.0f);
    if (layer == 0) {
      AddMlp(writer, prefix + "mlp.", 48);
      continue;
    }
    writer.Matrix(prefix + "mlp.gate.weight", 6, 32, 1.0f);
    writer.Add(prefix + "mlp.gate.e_score_correction_bias", {6}, 0.02f);
    for (int expert = 0; expert < 6; ++expert) {
      AddMlp(writer, prefix + "mlp.experts." + std::to_string(expert) + ".", 16);
    }
    AddMlp(writer, prefix + "mlp.shared_experts.", 16);
  }
  writer.Norm("model.norm.weight", 32);
  writer.Matrix("lm_head.weight", kRandomTargetVocabulary, 32, 3.0f);
  writer.Write(directory + "/model.safetensors");
}

void WriteRandomDrafter(const std::string& directory, uint64_t seed) {
  std::filesystem::create_directories(directory);
  WriteText(directory + "/config.json", kDrafterConfig);
  Writer writer(seed);
  writer.Matrix("fc.weight", 32, 64, 1.0f);
  writer.Norm("hidden_norm.weight", 32);
  for (int layer = 0; layer < 2; ++layer) {
    const std::string prefix = "layers." + std::to_string(layer) + ".";
    writer.Norm(prefix + "input_layernorm.weight", 32);
    writer.Norm(prefix + "post_attention_layernorm.weight", 32);
    writer.Matrix(prefix + "self_attn.q_proj.weight", 32, 32, 1.0f);
    writer.Matrix(prefix + "self_attn.k_proj.weight", 16, 32, 1.0f);
    writer.Matrix(prefix + "self_attn.v_proj.weight", 16, 32, 1.0f);
    writer.Matrix(prefix + "self_attn.o_proj.weight", 32, 32, 1.0f);
    writer.Norm(prefix + "self_attn.q_norm.weight", 8);
    writer.Norm(prefix + "self_attn.k_norm.weight", 8);
    AddMlp(writer, prefix + "mlp.", 48);
  }
  writer.Norm("norm.weight", 32);
  writer.Write(directory + "/model.safetensors");
}

TemporaryDirectory::TemporaryDirectory() {
  std::string pattern = (std::filesystem::temp_directory_path() / "arborist-test-XXXXXX").string();
  Check(mkdtemp(pattern.data()) != nullptr, "a temporary directory can be made");
  path_ = pattern;
}

TemporaryDirectory::~TemporaryDirectory() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

}  // namespace arborist::tests
