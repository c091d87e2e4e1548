#include "verifier/model/model_config.h"

#include <gmock/gmock.h>
#include <google/protobuf/util/json_util.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "common/json/json.h"
#include "verifier/model/testing/golden_model.h"

namespace arborist::verifier {
namespace {

using google::protobuf::Struct;
using google::protobuf::Value;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class ModelConfigTest : public ::testing::Test {
 protected:
  void SetUp() override {
    directory_ =
        (std::filesystem::path(::testing::TempDir()) /
         absl::StrCat("model_config_", ::testing::UnitTest::GetInstance()->current_test_info()->name()))
            .string();
    std::filesystem::remove_all(directory_);
    std::filesystem::create_directories(directory_);
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }

  void Write(const std::string& name, const std::string& text) {
    std::ofstream(absl::StrCat(directory_, "/", name)) << text;
  }

  // The config of a golden target with one key set to a JSON value, or removed if that is empty. A key may be
  // "outer.inner".
  absl::StatusOr<ModelConfig> ReadWith(const std::string& target, const std::string& key,
                                       const std::string& json) {
    Struct config = ReadJson(testing::GoldenDirectory(target) + "/config.json")->fields();
    Struct* place = &config;
    std::string last = key;
    if (const size_t dot = key.find('.'); dot != std::string::npos) {
      place = (*config.mutable_fields())[key.substr(0, dot)].mutable_struct_value();
      last = key.substr(dot + 1);
    }
    if (json.empty()) {
      place->mutable_fields()->erase(last);
    } else {
      Value value;
      EXPECT_TRUE(google::protobuf::util::JsonStringToMessage(json, &value).ok()) << json;
      (*place->mutable_fields())[last] = value;
    }
    std::string text;
    EXPECT_TRUE(google::protobuf::util::MessageToJsonString(config, &text).ok());
    Write("config.json", text);
    return ReadModelConfig(directory_);
  }

  std::string directory_;
};

TEST_F(ModelConfigTest, ReadsEveryGoldenConfigWithItsFacts) {
  const ModelConfig wrapped = *ReadModelConfig(testing::GoldenDirectory("kimi_wrapped"));
  EXPECT_EQ(wrapped.model_type, "kimi_k2");
  EXPECT_EQ(wrapped.tensor_prefix, "language_model.");
  EXPECT_FLOAT_EQ(wrapped.rms_norm_eps, 1e-5f);
  EXPECT_EQ(wrapped.yarn->factor, 64);
  const ModelConfig lite = *ReadModelConfig(testing::GoldenDirectory("v2_lite"));
  EXPECT_EQ(lite.q_lora_rank, 0);
  EXPECT_EQ(lite.shared_width(), 16);
  EXPECT_EQ(lite.route_method, RouteMethod::kGreedy);
  const ModelConfig groups = *ReadModelConfig(testing::GoldenDirectory("v3_groups"));
  EXPECT_EQ(groups.groups, 8);
  EXPECT_EQ(groups.yarn->factor, 40) << "rope_parameters, as transformers 5 writes it";
  const ModelConfig tied = *ReadModelConfig(testing::GoldenDirectory("tied"));
  EXPECT_TRUE(tied.tie_word_embeddings);
  EXPECT_FALSE(tied.yarn.has_value());
  EXPECT_FALSE(tied.IsMoe(1));
  EXPECT_TRUE(tied.IsMoe(2));
}

TEST_F(ModelConfigTest, MoeLayerFreqLeavesLayersDense) {
  const ModelConfig config = *ReadWith("v2_groups", "moe_layer_freq", "2");
  EXPECT_TRUE(config.IsMoe(0));
  EXPECT_FALSE(config.IsMoe(1));
}

TEST_F(ModelConfigTest, StopIdsAreThoseOfBothFiles) {
  Write("generation_config.json",
        R"({"eos_token_id": [7, 1, 3], "temperature": 0.6, "top_p": 0.95, "do_sample": true})");
  const absl::StatusOr<ModelConfig> config = ReadWith("kimi_wrapped", "eos_token_id", "[5]");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_THAT(config->eos_ids, ElementsAre(1, 3, 5, 7));
  EXPECT_EQ(config->default_sampling.temperature, 0.6);
  EXPECT_EQ(config->default_sampling.top_p, 0.95);
  EXPECT_EQ(config->default_sampling.do_sample, true);
  EXPECT_FALSE(config->default_sampling.top_k.has_value());
  Write("generation_config.json", R"({"eos_token_id": [256]})");
  EXPECT_THAT(
      std::string(ReadModelConfig(directory_).status().message()),
      AllOf(HasSubstr("generation_config.json"), HasSubstr("eos_token_id=[256]"), HasSubstr("[0, 256)")));
  Write("generation_config.json", R"({"eos_token_id": "x"})");
  EXPECT_FALSE(ReadModelConfig(directory_).ok());
}

TEST_F(ModelConfigTest, RotarySpellingsMeanTheSame) {
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    for (const char* type : {"type", "rope_type"}) {
      const absl::StatusOr<ModelConfig> config = ReadWith(
          "tied", key,
          absl::StrCat(R"({")", type, R"(": "yarn", "factor": 4, "original_max_position_embeddings": 512})"));
      ASSERT_TRUE(config.ok()) << config.status();
      EXPECT_EQ(config->yarn->factor, 4);
      EXPECT_EQ(config->yarn->beta_fast, 32);
      EXPECT_EQ(config->yarn->mscale_all_dim, 0);
    }
  }
  const absl::StatusOr<ModelConfig> plain =
      ReadWith("tied", "rope_parameters", R"({"rope_type": "default", "rope_theta": 77})");
  ASSERT_TRUE(plain.ok()) << plain.status();
  EXPECT_FALSE(plain->yarn.has_value());
  EXPECT_EQ(plain->rope_theta, 77);
}

TEST_F(ModelConfigTest, WhatWeLackIsRefusedWithKeyValueAndExpectation) {
  struct Case {
    const char* target;
    const char* key;
    const char* json;  // empty: removed
    const char* message;
  };
  const Case cases[] = {
      {"tied", "model_type", "\"llama\"", "model_type=\"llama\", expected \"deepseek_v2\""},
      {"tied", "model_type", "\"deepseek_v32\"", "model_type=\"deepseek_v32\""},
      {"tied", "model_type", "", "model_type=missing"},
      {"kimi_wrapped", "model_type", "\"qwen2_vl\"", "expected \"kimi_k25\""},
      {"tied", "quantization_config", R"({"quant_method": "fp8"})",
       "quantization_config={\"quant_method\":\"fp8\"}"},
      {"kimi_wrapped", "quantization_config", R"({"quant_method": "fp8"})", "bf16, f16 and f32 only"},
      {"kimi_wrapped", "text_config.quantization_config", R"({"format": "pack-quantized"})", "text_config"},
      {"tied", "attention_bias", "true", "attention_bias=true, expected false"},
      {"tied", "mlp_bias", "true", "mlp_bias=true, expected false"},
      {"tied", "hidden_act", "\"gelu\"", "hidden_act=\"gelu\", expected \"silu\""},
      {"tied", "rope_scaling", R"({"type": "linear", "factor": 2})", "type=\"linear\", expected \"yarn\""},
      {"tied", "rope_scaling", R"({"rope_type": "llama3"})", "rope_type=\"llama3\", expected \"yarn\""},
      {"tied", "rope_scaling", R"({"factor": 2})", "type=missing"},
      {"tied", "rope_scaling", "3", "rope_scaling=3, expected an object"},
      {"kimi_step_ramp", "rope_scaling.truncate", "false", "truncate=false, expected true"},
      {"kimi_step_ramp", "rope_scaling.factor", "0.5", "factor=0.5, expected a number of at least 1"},
      {"kimi_step_ramp", "rope_scaling.factor", "", "factor=missing"},
      {"kimi_step_ramp", "rope_scaling.beta_fast", "0", "beta_fast=0, expected a number above 0"},
      {"kimi_step_ramp", "rope_scaling.mscale", "-1", "mscale=-1"},
      {"kimi_step_ramp", "rope_scaling.original_max_position_embeddings", "",
       "original_max_position_embeddings=missing"},
      {"tied", "scoring_func", "\"tanh\"", "scoring_func=\"tanh\", expected \"sigmoid\" or \"softmax\""},
      {"tied", "scoring_func", "\"softmax\"", "topk_method is \"noaux_tc\""},
      {"tied", "topk_method", "\"greedy\"", "topk_method is \"greedy\""},
      {"tied", "topk_method", "\"random\"", "topk_method=\"random\", expected \"noaux_tc\""},
      {"v2_lite", "norm_topk_prob", "true", "norm_topk_prob=true, expected false"},
      {"v3_groups", "n_group", "7", "n_group=7, expected a divisor of n_routed_experts=24"},
      {"v3_groups", "n_group", "24", "n_group=24, expected groups of at least two experts"},
      {"v3_groups", "topk_group", "9", "topk_group=9, expected an integer in [1, 8]"},
      {"v3_groups", "topk_group", "1", "num_experts_per_tok=6, expected at most the 3"},
      {"v3_groups", "num_experts_per_tok", "25", "num_experts_per_tok=25"},
      {"v3_groups", "num_experts_per_tok", "0", "num_experts_per_tok=0"},
      {"tied", "hidden_size", "0", "hidden_size=0, expected an integer in [1, "},
      {"tied", "hidden_size", "64.5", "hidden_size=64.5, expected an integer"},
      {"tied", "hidden_size", "\"64\"", "hidden_size=\"64\", expected an integer"},
      {"tied", "hidden_size", "", "hidden_size=missing"},
      {"tied", "vocab_size", "-3", "vocab_size=-3"},
      {"tied", "num_hidden_layers", "1e9", "num_hidden_layers=1000000000"},
      {"tied", "qk_rope_head_dim", "7", "qk_rope_head_dim=7, expected an even number"},
      {"tied", "q_lora_rank", "0", "q_lora_rank=0"},
      {"tied", "rms_norm_eps", "0", "rms_norm_eps=0, expected a number above 0"},
      {"tied", "rms_norm_eps", "1e-60", "rms_norm_eps=1e-60, expected a number above 0"},  // 0 as a float
      {"tied", "rms_norm_eps", "1e300", "rms_norm_eps=1e+300, expected a number above 0"},
      {"tied", "routed_scaling_factor", "1e39", "routed_scaling_factor=1e+39, expected a number above 0"},
      {"tied", "rope_theta", "-1", "rope_theta=-1"},
      {"tied", "rope_theta", "1", "rope_theta=1, expected a number above 1"},
      {"kimi_step_ramp", "rope_scaling.rope_theta", "1", "rope_theta=1, expected a number above 1"},
      {"kimi_step_ramp", "rope_scaling.factor", "1e300", "factor=1e+300, expected a number of at least 1"},
      {"kimi_step_ramp", "rope_scaling.mscale_all_dim", "1e40", "mscale_all_dim=1e+40"},
      {"tied", "routed_scaling_factor", "\"x\"", "routed_scaling_factor=\"x\", expected a finite number"},
      {"tied", "n_shared_experts", "-1", "n_shared_experts=-1"},
      {"tied", "moe_layer_freq", "0", "moe_layer_freq=0"},
      {"tied", "moe_layer_freq", "[1, 0]", "moe_layer_freq=[1,0]"},
      {"tied", "eos_token_id", "256", "eos_token_id=256, expected ids in [0, 256)"},
      {"tied", "bos_token_id", "-1", "bos_token_id=-1"},
      {"tied", "tie_word_embeddings", "1", "tie_word_embeddings=1, expected true or false"},
  };
  for (const Case& c : cases) {
    const absl::StatusOr<ModelConfig> config = ReadWith(c.target, c.key, c.json);
    ASSERT_FALSE(config.ok()) << c.key << "=" << c.json;
    EXPECT_EQ(config.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(config.status().message()),
                AllOf(HasSubstr("config.json"), HasSubstr(c.message)));
  }
}

TEST_F(ModelConfigTest, AMissingOrBrokenFileIsNamed) {
  EXPECT_THAT(std::string(ReadModelConfig(directory_).status().message()), HasSubstr("config.json"));
  Write("config.json", "{\"model_type\": ");
  EXPECT_THAT(std::string(ReadModelConfig(directory_).status().message()), HasSubstr("not a JSON object"));
}

TEST(Interpretation, SoftmaxScalesAreThoseOfThePublishedModels) {
  ModelConfig config;
  config.qk_nope_head_dim = 128;
  config.qk_rope_head_dim = 64;
  config.rope_theta = 50000;
  config.yarn =
      YarnScaling{.factor = 64, .mscale = 1, .mscale_all_dim = 1, .original_max_position_embeddings = 4096};
  EXPECT_NEAR(Interpret(config).softmax_scale, 0.14467963, 1e-7);  // Kimi K2.5, K2.6
  EXPECT_EQ(Interpret(config).rope_magnitude, 1);
  config.yarn->factor = 32;
  EXPECT_NEAR(Interpret(config).softmax_scale, 0.13086080, 1e-7);  // K2-Instruct
  config.yarn->factor = 40;
  EXPECT_NEAR(Interpret(config).softmax_scale, 0.13523378, 1e-7);  // DeepSeek-V3
  config.yarn->mscale = config.yarn->mscale_all_dim = 0.707;
  EXPECT_NEAR(Interpret(config).softmax_scale, 0.11472139, 1e-7);  // V2-Lite
  config.yarn->mscale = config.yarn->mscale_all_dim = 0;
  EXPECT_NEAR(Interpret(config).softmax_scale, 0.07216878, 1e-7);
}

TEST(Interpretation, YarnFrequenciesOfKimiK26AreTheKnownOnes) {
  const YarnScaling yarn{
      .factor = 64, .beta_fast = 32, .beta_slow = 1, .original_max_position_embeddings = 4096};
  const std::vector<double> frequency = RopeFrequencies(64, 50000, yarn);
  const std::pair<int, double> known[] = {{0, 1.0},
                                          {1, 7.13111085e-01},
                                          {8, 6.68740305e-02},
                                          {9, 4.37766560e-02},
                                          {14, 4.46584875e-03},
                                          {19, 1.58374991e-04},
                                          {20, 1.80702339e-05},
                                          {31, 4.38220646e-07}};
  for (const auto& [pair, value] : known) {
    EXPECT_NEAR(frequency[pair] / value, 1, 1e-6) << pair;
  }
}

TEST(Interpretation, EqualBetasGiveAStep) {
  const YarnScaling yarn{
      .factor = 32, .beta_fast = 1, .beta_slow = 1, .original_max_position_embeddings = 4096};
  const std::vector<double> plain = RopeFrequencies(64, 50000, std::nullopt);
  const std::vector<double> frequency = RopeFrequencies(64, 50000, yarn);
  for (int pair = 0; pair < 32; ++pair) {
    EXPECT_DOUBLE_EQ(frequency[pair], pair <= 19 ? plain[pair] : plain[pair] / 32) << pair;
  }
}

}  // namespace
}  // namespace arborist::verifier
