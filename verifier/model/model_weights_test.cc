// Checkpoints that are not what their config says.

#include "verifier/model/model_weights.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "verifier/model/testing/golden_model.h"
#include "verifier/model/testing/stored_tensors.h"

namespace arborist::verifier {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::ReadTensors;
using testing::Stored;
using testing::Tensors;
using testing::Widen;
using testing::WriteTensors;

// One layer of each kind and one expert stand for the others, which are read by the same lines.
bool Representative(const std::string& name) {
  return name.find("layers.2.") == std::string::npos &&
         (name.find(".experts.") == std::string::npos || name.find(".experts.23.") != std::string::npos);
}

class ModelWeightsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    directory_ =
        (std::filesystem::path(::testing::TempDir()) /
         absl::StrCat("model_weights_", ::testing::UnitTest::GetInstance()->current_test_info()->name()))
            .string();
    std::filesystem::remove_all(directory_);
    std::filesystem::create_directories(directory_);
    const std::string source = testing::GoldenDirectory("v3_groups");
    std::filesystem::copy_file(source + "/config.json", directory_ + "/config.json");
    tensors_ = ReadTensors(source + "/model.safetensors");
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }

  absl::Status Load() {
    WriteTensors(directory_ + "/model.safetensors", tensors_);
    const ModelConfig config = *ReadModelConfig(directory_);
    return LoadModelWeights(directory_, config, *ShardPlan::Make(config, 0, 1)).status();
  }
  void ExpectRefused(const std::string& name, const std::string& what) {
    const absl::Status status = Load();
    EXPECT_FALSE(status.ok()) << name << ": " << what;
    EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr("tensor " + name), HasSubstr(what)));
  }

  std::string directory_;
  Tensors tensors_;
};

TEST_F(ModelWeightsTest, AnUnalteredCopyLoads) {
  const absl::Status status = Load();
  EXPECT_TRUE(status.ok()) << status;
}

TEST_F(ModelWeightsTest, EveryTensorIsNeededAndNamedWhenMissing) {
  const Tensors whole = tensors_;
  for (const auto& [name, tensor] : whole) {
    if (!Representative(name)) {
      continue;
    }
    tensors_ = whole;
    tensors_.erase(name);
    ExpectRefused(name, "missing");
  }
}

TEST_F(ModelWeightsTest, WhatTheConfigDoesNotSayIsRefused) {
  const Tensors whole = tensors_;
  const Stored one = whole.at("model.layers.0.input_layernorm.weight");
  tensors_["model.layers.0.mlp.new.weight"] = one;
  ExpectRefused("model.layers.0.mlp.new.weight", "unknown, expected only tensors of the layer");
  tensors_ = whole;
  tensors_["model.layers.3.input_layernorm.weight"] = one;
  ExpectRefused("model.layers.3.input_layernorm.weight", "unknown, expected only layers in [0, 3)");
}

TEST_F(ModelWeightsTest, EveryWrongShapeAndTypeIsRefused) {
  const Tensors whole = tensors_;
  for (const auto& [name, tensor] : whole) {
    if (!Representative(name)) {
      continue;
    }
    tensors_ = whole;
    Stored& altered = tensors_[name];
    altered.shape.push_back(1);
    ExpectRefused(name, "shape=");
    altered.shape = {static_cast<int64_t>(altered.bytes.size())};
    altered.dtype = "U8";
    ExpectRefused(name, "dtype=U8, expected F32, BF16 or F16");
  }
}

TEST_F(ModelWeightsTest, NonFiniteWeightsAreRefusedInEveryTensorAndType) {
  const Tensors whole = tensors_;
  for (const auto& [name, tensor] : whole) {
    if (!Representative(name)) {
      continue;
    }
    tensors_ = whole;
    Stored& altered = tensors_[name];
    const float infinity = std::numeric_limits<float>::infinity();
    const uint32_t bits = std::bit_cast<uint32_t>(infinity);
    if (altered.dtype == "F32") {
      std::memcpy(altered.bytes.data() + altered.bytes.size() - 4, &bits, 4);
    } else {
      const uint16_t half = 0x7fc0;  // a NaN in bf16 and in f16
      std::memcpy(altered.bytes.data() + altered.bytes.size() - 2, &half, 2);
    }
    ExpectRefused(name, "holds an infinity or NaN");
  }
  tensors_ = whole;
  Stored& half = tensors_["model.norm.weight"];
  half.dtype = "F16";
  const uint16_t infinity = 0xfc00;
  std::memcpy(half.bytes.data(), &infinity, 2);
  ExpectRefused("model.norm.weight", "holds an infinity or NaN");
}

TEST_F(ModelWeightsTest, BiasesAndScalesBesideAWeightAreRefused) {
  for (const char* name :
       {"model.layers.0.self_attn.o_proj.bias", "model.layers.1.mlp.experts.0.up_proj.weight_scale_inv",
        "model.layers.2.mlp.experts.3.up_proj.weight_packed"}) {
    const Tensors whole = tensors_;
    tensors_[name] = {"F32", {1}, std::string(4, '\0')};
    ExpectRefused(name, "not supported");
    tensors_ = whole;
  }
}

TEST_F(ModelWeightsTest, PredictionLayersVisionAndRotaryTablesAreNotTouched) {
  const std::string nan = "\xff\xff\xff\xff";
  for (const char* name :
       {"model.layers.3.eh_proj.weight", "model.layers.3.mlp.up_proj.weight_scale_inv", "vision_tower.x.bias",
        "mm_projector.bias", "model.layers.0.self_attn.rotary_emb.inv_freq"}) {
    tensors_[name] = {"F32", {1}, nan};
  }
  const absl::Status status = Load();
  EXPECT_TRUE(status.ok()) << status;
}

// The same values stored wider: logits stay bit-equal, because arithmetic is fp32 either way.
TEST_F(ModelWeightsTest, F32WeightsGiveTheBitsOfTheirBf16Originals) {
  Widen(tensors_);
  WriteTensors(directory_ + "/model.safetensors", tensors_);
  const testing::Golden golden = testing::ReadGolden("v3_groups");
  const auto wide = testing::Harness::Make({.directory = directory_});
  const auto original = testing::Harness::Make({.directory = testing::GoldenDirectory("v3_groups")});
  ASSERT_TRUE(wide.ok() && original.ok());
  const auto got = (*wide)->Run(golden.tokens, 40);
  const auto want = (*original)->Run(golden.tokens, 40);
  ASSERT_TRUE(got.ok() && want.ok());
  EXPECT_EQ(got->logits, want->logits);
}

TEST_F(ModelWeightsTest, OptionsOutsideTheModelAreRefused) {
  ASSERT_TRUE(Load().ok());
  ThreadPool threads(1);
  const auto device = OpenCpuDevice(threads);
  const auto refusal = [&](const ModelOptions& options) {
    const auto model = Model::Load(options, kernels::CpuKernels(), *device);
    return std::string(model.status().message());
  };
  const auto options = [&](int rows, int logits, int context, std::vector<int> taps) {
    return ModelOptions{.directory = directory_,
                        .max_rows = rows,
                        .max_logits_rows = logits,
                        .max_context = context,
                        .tap_layers = std::move(taps)};
  };
  EXPECT_EQ(refusal(options(4, 4, 64, {2, 0})), "");
  EXPECT_EQ(refusal(options(0, 0, 64, {})), "max_rows=0, expected at least 1");
  EXPECT_THAT(refusal(options(4, 5, 64, {})), HasSubstr("max_logits_rows=5"));
  EXPECT_THAT(refusal(options(4, 4, 163904, {})), HasSubstr("max_context=163904"));
  EXPECT_EQ(refusal(options(4, 4, 64, {3})), "tap_layers=3, expected layers in [0, 3)");
  EXPECT_EQ(refusal(options(4, 4, 64, {1, 0, 1})), "tap_layers=1, expected every layer at most once");
}

}  // namespace
}  // namespace arborist::verifier
