#include "drafter/model/dflash_weights.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "common/projection/testing/checkpoint_writer.h"

namespace arborist::drafter {
namespace {

using arborist::testing::CheckpointWriter;
using arborist::testing::ScratchDirectory;
using ::testing::HasSubstr;

DFlashSettings Settings() {
  DFlashSettings settings;
  settings.vocabulary = 10;
  settings.hidden = 4;
  settings.intermediate = 6;
  settings.heads = 2;
  settings.kv_heads = 1;
  settings.head_dim = 2;
  settings.layers.resize(2);
  return settings;
}

CheckpointWriter Drafter() {
  std::mt19937 random(1);
  CheckpointWriter writer;
  const auto add = [&](const std::string& name, std::vector<int64_t> shape) {
    writer.SetRandom(name, std::move(shape), 1, 0, random);
  };
  add("fc.weight", {4, 8});
  add("hidden_norm.weight", {4});
  add("norm.weight", {4});
  for (const std::string p : {"layers.0.", "layers.1."}) {
    add(p + "input_layernorm.weight", {4});
    add(p + "post_attention_layernorm.weight", {4});
    add(p + "self_attn.q_norm.weight", {2});
    add(p + "self_attn.k_norm.weight", {2});
    add(p + "self_attn.q_proj.weight", {4, 4});
    add(p + "self_attn.k_proj.weight", {2, 4});
    add(p + "self_attn.v_proj.weight", {2, 4});
    add(p + "self_attn.o_proj.weight", {4, 4});
    add(p + "mlp.gate_proj.weight", {6, 4});
    add(p + "mlp.up_proj.weight", {6, 4});
    add(p + "mlp.down_proj.weight", {4, 6});
  }
  return writer;
}

CheckpointWriter Target(const std::string& prefix = "") {
  std::mt19937 random(2);
  CheckpointWriter writer;
  writer.SetRandom(prefix + "model.embed_tokens.weight", {10, 4}, 1, 0, random);
  writer.SetRandom(prefix + "lm_head.weight", {10, 4}, 1, 0, random);
  writer.SetRandom(prefix + "model.norm.weight", {4}, 1, 0, random);
  return writer;
}

absl::Status LoadDrafter(const CheckpointWriter& writer) {
  const ScratchDirectory directory;
  directory.Write("model.safetensors", writer.Bytes());
  const absl::StatusOr<Checkpoint> checkpoint = Checkpoint::Open(directory.path());
  EXPECT_TRUE(checkpoint.ok()) << checkpoint.status();
  DFlashWeights weights;
  return LoadDrafterTensors(*checkpoint, Settings(), weights);
}

struct Borrowed {
  bool same_matrix = false;
  absl::Status status;
};

Borrowed LoadTarget(const CheckpointWriter& writer, const std::string& config) {
  const ScratchDirectory directory;
  directory.Write("model.safetensors", writer.Bytes());
  directory.Write("config.json", config);
  const absl::StatusOr<Checkpoint> checkpoint = Checkpoint::Open(directory.path());
  EXPECT_TRUE(checkpoint.ok()) << checkpoint.status();
  DFlashWeights weights;
  const absl::Status status = LoadTargetTensors(*checkpoint, Settings(), weights);
  return {weights.embedding.data == weights.head.data, status};
}

TEST(DFlashWeightsTest, NamesMayCarryTheModelPrefix) {
  EXPECT_TRUE(LoadDrafter(Drafter()).ok()) << LoadDrafter(Drafter());
  CheckpointWriter prefixed = Drafter();
  for (const std::string& name : prefixed.Names()) {
    prefixed.Rename(name, "model." + name);
  }
  EXPECT_TRUE(LoadDrafter(prefixed).ok()) << LoadDrafter(prefixed);
}

TEST(DFlashWeightsTest, EveryTensorIsNeededInItsExactShape) {
  for (const std::string& name : Drafter().Names()) {
    if (name == "hidden_norm.weight") {
      continue;  // the projection's
    }
    CheckpointWriter without = Drafter();
    without.Remove(name);
    const absl::Status missing = LoadDrafter(without);
    EXPECT_FALSE(missing.ok()) << name;
    EXPECT_THAT(std::string(missing.message()), HasSubstr(name));
    if (name == "fc.weight") {
      continue;
    }
    CheckpointWriter odd = Drafter();
    odd.SetF32(name, {3}, {1, 1, 1});
    EXPECT_THAT(std::string(LoadDrafter(odd).message()),
                HasSubstr("tensor " + name + ": shape=[3], expected ["));
  }
}

TEST(DFlashWeightsTest, TensorsOfAnotherNetworkAreRefused) {
  for (const std::string name : {"layers.2.input_layernorm.weight", "layers.0.self_attn.q_proj.bias",
                                 "embed_tokens.weight", "successor_codebook", "mask_embedding"}) {
    CheckpointWriter more = Drafter();
    more.SetF32(name, {2}, {1, 1});
    const std::string message(LoadDrafter(more).message());
    EXPECT_THAT(message, HasSubstr("tensor " + name + ": unknown"));
  }
  CheckpointWriter frequencies = Drafter();
  frequencies.SetF32("layers.0.self_attn.rotary_emb.inv_freq", {1}, {1});
  EXPECT_TRUE(LoadDrafter(frequencies).ok());
}

TEST(DFlashWeightsTest, AMaskEmbeddingFileIsRefused) {
  const ScratchDirectory directory;
  directory.Write("model.safetensors", Drafter().Bytes());
  directory.Write("mask_embedding.pt", "x");
  DFlashWeights weights;
  const absl::Status status = LoadDrafterTensors(*Checkpoint::Open(directory.path()), Settings(), weights);
  EXPECT_THAT(std::string(status.message()), HasSubstr("mask_embedding.pt: a mask embedding of its own"));
}

TEST(DFlashWeightsTest, TargetLendsEmbeddingAndHead) {
  const Borrowed plain = LoadTarget(Target(), "{}");
  EXPECT_TRUE(plain.status.ok()) << plain.status;
  EXPECT_FALSE(plain.same_matrix);
  const Borrowed wrapped = LoadTarget(Target("language_model."), R"({"text_config": {}})");
  EXPECT_TRUE(wrapped.status.ok()) << wrapped.status;
}

TEST(DFlashWeightsTest, TiedTargetsLendOneMatrix) {
  CheckpointWriter tied = Target();
  tied.Remove("lm_head.weight");
  EXPECT_TRUE(LoadTarget(tied, R"({"tie_word_embeddings": true})").same_matrix);
  EXPECT_TRUE(LoadTarget(tied, R"({"tie_word_embeddings": true})").status.ok());
  EXPECT_TRUE(LoadTarget(tied, R"({"text_config": {"tie_word_embeddings": true}})").status.ok());
  EXPECT_THAT(std::string(LoadTarget(tied, "{}").status.message()),
              HasSubstr("tensor lm_head.weight: missing"));
}

TEST(DFlashWeightsTest, AnotherVocabularyThanTheTargetsIsNamed) {
  std::mt19937 random(3);
  CheckpointWriter other = Target();
  other.SetRandom("model.embed_tokens.weight", {12, 4}, 1, 0, random);
  EXPECT_THAT(std::string(LoadTarget(other, "{}").status.message()),
              HasSubstr("tensor model.embed_tokens.weight: shape=[12, 4], expected [10, 4]"));
  other = Target();
  other.SetRandom("lm_head.weight", {10, 8}, 1, 0, random);
  EXPECT_THAT(std::string(LoadTarget(other, "{}").status.message()),
              HasSubstr("tensor lm_head.weight: shape=[10, 8], expected [10, 4]"));
}

}  // namespace
}  // namespace arborist::drafter
