#include "drafter/model/dflash_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "common/projection/testing/checkpoint_writer.h"
#include "drafter/model/rotary_tables.h"

namespace arborist::drafter {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Key -> JSON text. Keys of dflash_config begin with "dflash.".
using Keys = std::map<std::string, std::string>;

Keys Base() {
  return {{"architectures", R"(["DFlashDraftModel"])"},
          {"vocab_size", "163840"},
          {"hidden_size", "7168"},
          {"intermediate_size", "18432"},
          {"num_hidden_layers", "2"},
          {"num_attention_heads", "64"},
          {"num_key_value_heads", "8"},
          {"head_dim", "128"},
          {"hidden_act", "\"silu\""},
          {"rms_norm_eps", "1e-05"},
          {"max_position_embeddings", "262144"},
          {"rope_theta", "50000"},
          {"block_size", "8"},
          {"num_target_layers", "61"},
          {"dflash.mask_token_id", "163838"},
          {"dflash.target_layer_ids", "[1, 12, 24, 35, 47, 58]"}};
}

std::string Json(const Keys& keys) {
  std::string top, inner;
  for (const auto& [key, value] : keys) {
    const bool nested = key.starts_with("dflash.");
    std::string& text = nested ? inner : top;
    text += (text.empty() ? "\"" : ", \"") + (nested ? key.substr(7) : key) + "\": " + value;
  }
  return "{" + top + (inner.empty() ? "}" : ", \"dflash_config\": {" + inner + "}}");
}

absl::StatusOr<DFlashSettings> Read(const Keys& changes) {
  Keys keys = Base();
  for (const auto& [key, value] : changes) {
    if (value.empty()) {
      keys.erase(key);
    } else {
      keys[key] = value;
    }
  }
  const arborist::testing::ScratchDirectory directory;
  directory.Write("config.json", Json(keys));
  return ReadDFlashConfig(directory.path());
}

std::string ErrorOf(const Keys& changes) {
  const absl::StatusOr<DFlashSettings> settings = Read(changes);
  return settings.ok() ? "no error" : std::string(settings.status().message());
}

TEST(DFlashConfigTest, ReadsTheKimiDrafter) {
  const absl::StatusOr<DFlashSettings> s =
      Read({{"rope_scaling", R"({"type": "yarn", "factor": 64, "original_max_position_embeddings": 4096,
              "beta_fast": 32, "beta_slow": 1, "mscale": 1, "mscale_all_dim": 1})"}});
  ASSERT_TRUE(s.ok()) << s.status();
  EXPECT_EQ(s->vocabulary, 163840);
  EXPECT_EQ(s->query_width(), 8192);
  EXPECT_EQ(s->kv_width(), 1024);
  EXPECT_EQ(s->block, 8);
  EXPECT_EQ(s->mask_token, 163838);
  EXPECT_THAT(s->taps, ElementsAre(1, 12, 24, 35, 47, 58));
  EXPECT_FLOAT_EQ(s->attention_scale, std::pow(128.0f, -0.5f));
  EXPECT_TRUE(s->rotary.yarn);
  EXPECT_EQ(s->rotary.attention_factor, 1);
  EXPECT_FALSE(s->layers[0].causal);
  EXPECT_EQ(s->layers[0].window, 0);
}

TEST(DFlashConfigTest, SlidingLayersAreCausalUnlessAKeySaysOtherwise) {
  const Keys sliding = {{"layer_types", R"(["sliding_attention", "full_attention"])"},
                        {"sliding_window", "2048"}};
  const auto with = [&](Keys more) {
    more.insert(sliding.begin(), sliding.end());
    return *Read(more);
  };
  EXPECT_TRUE(with({}).layers[0].causal);
  EXPECT_EQ(with({}).layers[0].window, 2048);
  EXPECT_FALSE(with({}).layers[1].causal);
  EXPECT_EQ(with({}).layers[1].window, 0);
  EXPECT_FALSE(with({{"is_causal", "false"}}).layers[0].causal);
  EXPECT_TRUE(with({{"is_causal", "true"}}).layers[1].causal);
  EXPECT_FALSE(with({{"dflash.causal", "false"}}).layers[0].causal);
  EXPECT_TRUE(with({{"is_causal", "true"}, {"dflash.causal", "false"}}).layers[0].causal);
}

TEST(DFlashConfigTest, AttentionFactorFollowsItsKeys) {
  const auto factor = [](const std::string& more) {
    return Read({{"rope_scaling",
                  R"({"type": "yarn", "factor": 64, "original_max_position_embeddings": 4096)" + more + "}"}})
        ->rotary.attention_factor;
  };
  const double one = 0.1 * std::log(64.0) + 1;
  EXPECT_DOUBLE_EQ(factor(""), one);
  EXPECT_DOUBLE_EQ(factor(R"(, "mscale": 1)"), one);
  EXPECT_DOUBLE_EQ(factor(R"(, "mscale": 0, "mscale_all_dim": 1)"), one);
  EXPECT_DOUBLE_EQ(factor(R"(, "mscale": 1, "mscale_all_dim": 1)"), 1);
  EXPECT_DOUBLE_EQ(factor(R"(, "mscale": 1, "mscale_all_dim": 0.5)"), one / (0.05 * std::log(64.0) + 1));
  EXPECT_DOUBLE_EQ(factor(R"(, "attention_factor": 1.25, "mscale": 1, "mscale_all_dim": 1)"), 1.25);
}

TEST(DFlashConfigTest, BothSpellingsOfRotaryKeysAreRead) {
  const absl::StatusOr<DFlashSettings> s =
      Read({{"rope_theta", ""}, {"rope_parameters", R"({"rope_type": "default", "rope_theta": 1234})"}});
  ASSERT_TRUE(s.ok()) << s.status();
  EXPECT_EQ(s->rotary.theta, 1234);
  EXPECT_FALSE(s->rotary.yarn);
  EXPECT_EQ(Read({{"rope_theta", ""}})->rotary.theta, 10000);
}

TEST(DFlashConfigTest, BlockSizeMayStandInDflashConfig) {
  EXPECT_EQ(Read({{"block_size", ""}, {"dflash.block_size", "16"}})->block, 16);
}

TEST(DFlashConfigTest, KeysThatAreOffChangeNothing) {
  EXPECT_TRUE(Read({{"dflash.causal_head", "false"},
                    {"dflash.attention_mode", "\"gqa\""},
                    {"attention_bias", "false"},
                    {"dflash.use_swa", "false"},
                    {"input_embedding_scale", "1.0"},
                    {"final_logit_softcapping", "null"},
                    {"quantization_config", "null"},
                    {"layer_types", "null"},
                    {"use_sliding_window", "false"}})
                  .ok());
}

struct Refused {
  Keys changes;
  std::string message;
};

TEST(DFlashConfigTest, UnsupportedKeysAreRefusedWithValueAndWhatIsSupported) {
  const Refused cases[] = {
      {{{"conv_kernel_size", "2"}}, "conv_kernel_size=2, expected no such key: DFlash2's convolution"},
      {{{"dflash.conv_group_size", "16"}}, "dflash_config: conv_group_size=16, expected no such key"},
      {{{"dflash.selector_rank", "256"}},
       "selector_rank=256, expected no such key: DFlash2's candidate selector"},
      {{{"selector_top_k", "16"}}, "selector_top_k=16"},
      {{{"dflash.causal_head", "true"}}, "causal_head=true, expected false"},
      {{{"dflash.attention_mode", "\"mla\""}}, "attention_mode=\"mla\", expected gqa or mha"},
      {{{"dflash.attention_modes", R"(["gqa", "kda"])"}},
       R"(attention_modes=["gqa","kda"], expected gqa or mha)"},
      {{{"input_embedding_scale", "2"}}, "input_embedding_scale=2, expected 1"},
      {{{"output_multiplier", "0.5"}}, "output_multiplier=0.5, expected 1"},
      {{{"final_logit_softcapping", "30"}}, "final_logit_softcapping=30, expected null"},
      {{{"dflash.mask_embedding", "\"mask_embedding.pt\""}}, "mask_embedding=\"mask_embedding.pt\""},
      {{{"attention_bias", "true"}}, "attention_bias=true, expected false"},
      {{{"mlp_bias", "true"}}, "mlp_bias=true"},
      {{{"dflash.use_swa", "true"}}, "use_swa=true, expected false: sliding layers are supported through"},
      {{{"dflash.swa_window_size", "1024"}}, "swa_window_size=1024"},
      {{{"dflash.fc_norm", "true"}}, "fc_norm=true"},
      {{{"rope_interleave", "true"}}, "rope_interleave=true"},
      {{{"quantization_config", R"({"quant_method": "fp8"})"}}, "quantization_config="},
      {{{"hidden_act", "\"gelu\""}}, "hidden_act=\"gelu\", expected silu"},
      {{{"kv_lora_rank", "512"}}, "kv_lora_rank=512, expected no such key: MLA drafters"},
      {{{"partial_rotary_factor", "0.5"}}, "partial_rotary_factor=0.5, expected 1"},
      {{{"architectures", R"(["Qwen3DFlash2Model"])"}},
       R"(architectures=["Qwen3DFlash2Model"], expected ["DFlash)"},
      {{{"rope_scaling", R"({"type": "llama3", "factor": 8})"}}, "type=\"llama3\", expected default or yarn"},
      {{{"rope_scaling",
         R"({"type": "yarn", "factor": 8, "original_max_position_embeddings": 64, "truncate": false})"}},
       "truncate=false, expected true"},
  };
  for (const Refused& refused : cases) {
    EXPECT_THAT(ErrorOf(refused.changes), HasSubstr(refused.message));
  }
}

TEST(DFlashConfigTest, BadValuesAreNamed) {
  const Refused cases[] = {
      {{{"vocab_size", "0"}}, "vocab_size=0"},
      {{{"hidden_size", "\"x\""}}, "hidden_size=\"x\""},
      {{{"num_key_value_heads", "7"}}, "num_key_value_heads=7, expected a divisor of num_attention_heads=64"},
      {{{"head_dim", "127"}}, "head_dim=127, expected an even number"},
      {{{"rms_norm_eps", "0"}}, "rms_norm_eps=0"},
      {{{"block_size", "1"}}, "block_size=1, expected an integer from 2"},
      {{{"block_size", ""}}, "block_size=missing"},
      {{{"dflash.mask_token_id", "163840"}}, "mask_token_id=163840, expected an integer from 0 to 163839"},
      {{{"dflash.mask_token_id", ""}}, "mask_token_id=missing"},
      {{{"dflash.mask_token_id", ""}, {"dflash.target_layer_ids", ""}}, "dflash_config=missing"},
      {{{"layer_types", R"(["full_attention"])"}}, "layer_types=[\"full_attention\"], expected 2 entries"},
      {{{"layer_types", R"(["full_attention", "linear_attention"])"}},
       "expected full_attention and sliding_attention"},
      {{{"layer_types", R"(["full_attention", "sliding_attention"])"}}, "sliding_window=missing"},
      {{{"layer_types", R"(["full_attention", "sliding_attention"])"},
        {"sliding_window", "16"},
        {"use_sliding_window", "false"}},
       "use_sliding_window=false, expected true with sliding layers"},
      {{{"use_sliding_window", "true"}}, "use_sliding_window=true, expected false without layer_types"},
      {{{"rms_norm_eps", "1e-60"}}, "rms_norm_eps=1e-60, expected a number in (0, 1)"},  // 0 as a float
      {{{"rope_theta", "-1"}}, "rope_theta=-1"},
      {{{"rope_theta", "1"}}, "rope_theta=1, expected a number above 1"},
      {{{"rope_scaling", R"({"type": "yarn", "factor": 8, "original_max_position_embeddings": 64,
                             "mscale": -1000, "mscale_all_dim": 1})"}},
       "mscale=-1000, expected one that makes attention_factor positive"},
      {{{"rope_scaling", R"({"type": "yarn", "factor": 8})"}}, "original_max_position_embeddings=missing"},
      {{{"rope_scaling", R"({"type": "yarn", "factor": 0.5, "original_max_position_embeddings": 64})"}},
       "factor=0.5"},
      {{{"max_position_embeddings", "0"}}, "max_position_embeddings=0"},
  };
  for (const Refused& refused : cases) {
    EXPECT_THAT(ErrorOf(refused.changes), HasSubstr(refused.message));
  }
}

TEST(RotaryTablesTest, HoldCosineAndSineTimesTheFactor) {
  const RotarySettings settings{.theta = 100, .attention_factor = 1.5};
  const RotaryTables tables(settings, 4, 10);
  ASSERT_EQ(tables.cosine().rows, 10);
  ASSERT_EQ(tables.cosine().columns, 2);
  EXPECT_FLOAT_EQ(tables.cosine().row(3)[0], static_cast<float>(1.5 * std::cos(3.0)));
  EXPECT_FLOAT_EQ(tables.sine().row(3)[1], static_cast<float>(1.5 * std::sin(0.3)));
}

TEST(RotaryTablesTest, YarnKeepsFastPairsAndDividesSlowOnes) {
  const RotarySettings plain{.theta = 50000};
  RotarySettings yarn = plain;
  yarn.yarn = true;
  yarn.factor = 64;
  yarn.original_positions = 4096;
  const std::vector<double> base = RotaryFrequencies(plain, 128), scaled = RotaryFrequencies(yarn, 128);
  EXPECT_DOUBLE_EQ(scaled[0], base[0]);
  EXPECT_DOUBLE_EQ(scaled[63], base[63] / 64);
  for (size_t i = 1; i < scaled.size(); ++i) {
    EXPECT_LT(scaled[i], scaled[i - 1]);
    EXPECT_LE(scaled[i], base[i]);
    EXPECT_GE(scaled[i], base[i] / 64);
  }
}

}  // namespace
}  // namespace arborist::drafter
