#include "common/projection/projection.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <random>

#include "common/base/status_macros.h"
#include "common/projection/testing/checkpoint_writer.h"
#include "common/weights/fingerprint.h"

namespace arborist {
namespace {

using testing::CheckpointWriter;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::ScratchDirectory;

constexpr char kConfig[] = R"({"hidden_size": 4, "rms_norm_eps": 1e-05, "num_hidden_layers": 2,
 "num_target_layers": 7, "dflash_config": {"target_layer_ids": [1, 4]}})";

CheckpointWriter Tensors(uint32_t seed) {
  std::mt19937 random(seed);
  CheckpointWriter writer;
  writer.SetRandom("fc.weight", {4, 8}, 1, 0, random);
  writer.SetRandom("hidden_norm.weight", {4}, 0.1f, 1, random);
  return writer;
}

absl::StatusOr<Projection> Load(const CheckpointWriter& writer, const std::string& config = kConfig) {
  const ScratchDirectory directory;
  directory.Write("config.json", config);
  directory.Write("model.safetensors", writer.Bytes());
  return LoadProjection(directory.path());
}

absl::StatusOr<std::vector<int32_t>> Taps(const std::string& config) {
  ASSIGN_OR_RETURN(const JsonObject json, ParseJson(config, "config.json"));
  return TargetLayerIds(json);
}

std::string ErrorOf(const CheckpointWriter& writer, const std::string& config = kConfig) {
  const absl::StatusOr<Projection> projection = Load(writer, config);
  return projection.ok() ? "no error" : std::string(projection.status().message());
}

TEST(ProjectionTest, ReadsBothTensorsTapsAndEpsilon) {
  CheckpointWriter writer = Tensors(1);
  writer.SetF32("hidden_norm.weight", {4}, {1, 2, 3, 4});
  const absl::StatusOr<Projection> projection = Load(writer);
  ASSERT_TRUE(projection.ok()) << projection.status();
  EXPECT_EQ(projection->hidden(), 4);
  EXPECT_EQ(projection->fc.columns, 8);
  EXPECT_EQ(projection->fc.dtype, DType::kBF16);
  EXPECT_THAT(projection->norm, ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(projection->taps, ElementsAre(1, 4));
  EXPECT_EQ(projection->epsilon, 1e-5f);
}

TEST(ProjectionTest, HashIsSha256OfBothTensorsAndTheTapsInOrder) {
  CheckpointWriter writer;
  writer.SetRaw("fc.weight", "BF16", {4, 8}, std::string(64, '\1'));
  writer.SetRaw("hidden_norm.weight", "BF16", {4}, std::string(8, '\2'));
  const std::string taps("\1\0\0\0\4\0\0\0", 8);
  const absl::StatusOr<Projection> projection = Load(writer);
  ASSERT_TRUE(projection.ok()) << projection.status();
  EXPECT_EQ(projection->hash, Sha256(std::string(64, '\1') + std::string(8, '\2') + taps));
}

TEST(ProjectionTest, HashChangesWithEachOfItsThreeParts) {
  const std::string hash = Load(Tensors(1))->hash;
  EXPECT_EQ(Load(Tensors(1))->hash, hash);
  CheckpointWriter other_fc = Tensors(1), other_norm = Tensors(1);
  other_fc.SetBf16("fc.weight", {4, 8}, std::vector<float>(32, 0.5f));
  other_norm.SetBf16("hidden_norm.weight", {4}, {1, 1, 1, 1});
  EXPECT_NE(Load(other_fc)->hash, hash);
  EXPECT_NE(Load(other_norm)->hash, hash);
  std::string swapped = kConfig;
  swapped.replace(swapped.find("[1, 4]"), 6, "[4, 1]");
  EXPECT_NE(Load(Tensors(1), swapped)->hash, hash);
}

TEST(ProjectionTest, NamesMayCarryTheModelPrefix) {
  CheckpointWriter writer = Tensors(1);
  const std::string hash = Load(writer)->hash;
  writer.Rename("fc.weight", "model.fc.weight");
  writer.Rename("hidden_norm.weight", "model.hidden_norm.weight");
  ASSERT_TRUE(Load(writer).ok());
  EXPECT_EQ(Load(writer)->hash, hash);
}

TEST(ProjectionTest, TapsWithoutAListAreEvenlySpread) {
  EXPECT_THAT(*Taps(R"({"num_target_layers": 61, "num_hidden_layers": 6})"),
              ElementsAre(1, 12, 24, 35, 47, 58));
  EXPECT_THAT(*Taps(R"({"num_target_layers": 36, "num_hidden_layers": 5, "dflash_config": {}})"),
              ElementsAre(1, 9, 17, 25, 33));
  EXPECT_THAT(*Taps(R"({"num_target_layers": 61, "num_hidden_layers": 1})"), ElementsAre(30));
}

TEST(ProjectionTest, BadTapsAreRefusedByName) {
  for (const char* ids : {"[]", "[-1]", "[1, 1]", "[5000]", "\"x\"", "[1.5]"}) {
    const absl::StatusOr<std::vector<int32_t>> taps =
        Taps(std::string(R"({"dflash_config": {"target_layer_ids": )") + ids + "}}");
    ASSERT_FALSE(taps.ok()) << ids;
    EXPECT_THAT(std::string(taps.status().message()), HasSubstr("target_layer_ids=")) << ids;
  }
  EXPECT_FALSE(Taps(R"({"num_target_layers": 4, "num_hidden_layers": 2})").ok());
  EXPECT_FALSE(Taps(R"({"num_hidden_layers": 2})").ok());
}

TEST(ProjectionTest, ShapeMismatchNamesTheTensorAndBothShapes) {
  std::mt19937 random(1);
  CheckpointWriter writer = Tensors(1);
  writer.SetRandom("fc.weight", {4, 12}, 1, 0, random);
  EXPECT_THAT(ErrorOf(writer), HasSubstr("tensor fc.weight: shape=[4, 12], expected [4, 8]"));
  writer = Tensors(1);
  writer.SetRandom("hidden_norm.weight", {5}, 1, 0, random);
  EXPECT_THAT(ErrorOf(writer), HasSubstr("tensor hidden_norm.weight: shape=[5], expected [4]"));
}

TEST(ProjectionTest, MissingTensorsTypesAndNonFiniteNormsAreNamed) {
  CheckpointWriter writer = Tensors(1);
  writer.Remove("fc.weight");
  EXPECT_THAT(ErrorOf(writer), HasSubstr("fc.weight: missing"));
  writer = Tensors(1);
  writer.Remove("hidden_norm.weight");
  EXPECT_THAT(ErrorOf(writer), HasSubstr("tensor hidden_norm.weight: missing"));
  writer = Tensors(1);
  writer.SetRaw("fc.weight", "I32", {4, 8}, std::string(128, '\0'));
  EXPECT_THAT(ErrorOf(writer), HasSubstr("tensor fc.weight: dtype=I32, expected F32, BF16 or F16"));
  writer = Tensors(1);
  writer.SetF32("hidden_norm.weight", {4}, {1, 1, std::numeric_limits<float>::quiet_NaN(), 1});
  EXPECT_THAT(ErrorOf(writer),
              HasSubstr("tensor hidden_norm.weight: element 2=nan, expected a finite value"));
  writer = Tensors(1);
  std::vector<float> infinite(32, 1);
  infinite.back() = -std::numeric_limits<float>::infinity();
  writer.SetF32("fc.weight", {4, 8}, infinite);
  EXPECT_THAT(ErrorOf(writer), HasSubstr("tensor fc.weight: holds an infinity or NaN"));
}

TEST(ProjectionTest, BadConfigValuesAreNamed) {
  EXPECT_THAT(ErrorOf(Tensors(1), R"({"hidden_size": 0, "rms_norm_eps": 1e-5})"), HasSubstr("hidden_size=0"));
  EXPECT_THAT(ErrorOf(Tensors(1), R"({"hidden_size": 4, "rms_norm_eps": 0})"), HasSubstr("rms_norm_eps=0"));
  EXPECT_THAT(ErrorOf(Tensors(1), R"({"hidden_size": 4})"), HasSubstr("rms_norm_eps=missing"));
}

TEST(ProjectionTest, HalfPrecisionNormsAreWidenedExactly) {
  CheckpointWriter writer = Tensors(1);
  // 1, -2, the smallest subnormal, 65504.
  writer.SetRaw("hidden_norm.weight", "F16", {4}, std::string("\x00\x3c\x00\xc0\x01\x00\xff\x7b", 8));
  const absl::StatusOr<Projection> projection = Load(writer);
  ASSERT_TRUE(projection.ok()) << projection.status();
  EXPECT_THAT(projection->norm, ElementsAre(1.0f, -2.0f, 5.9604644775390625e-8f, 65504.0f));
}

}  // namespace
}  // namespace arborist
