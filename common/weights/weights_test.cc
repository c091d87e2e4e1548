#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>

#include "absl/strings/str_cat.h"
#include "common/weights/checkpoint.h"
#include "common/weights/fingerprint.h"
#include "common/weights/safetensors.h"

namespace arborist {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class WeightsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    directory_ = (std::filesystem::path(::testing::TempDir()) /
                  absl::StrCat("weights_", ::testing::UnitTest::GetInstance()->current_test_info()->name()))
                     .string();
    std::filesystem::remove_all(directory_);
    std::filesystem::create_directories(directory_);
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }

  std::string Path(const std::string& name) const { return absl::StrCat(directory_, "/", name); }
  void Write(const std::string& name, const std::string& bytes) const {
    std::ofstream(Path(name), std::ios::binary) << bytes;
  }
  // The header is padded with spaces so that data begins at a multiple of 8, as writers do.
  static std::string File(std::string header, const std::string& data) {
    header.resize((header.size() + 7) / 8 * 8, ' ');
    const uint64_t length = header.size();
    return std::string(reinterpret_cast<const char*>(&length), 8) + header + data;
  }
  std::string Refusal(const std::string& bytes) const {
    Write("bad.safetensors", bytes);
    const auto file = SafetensorsFile::Open(Path("bad.safetensors"));
    EXPECT_FALSE(file.ok());
    return std::string(file.status().message());
  }

  std::string directory_;
};

const char kOne[] = R"({"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}})";

TEST_F(WeightsTest, ATensorIsReadWhereItLies) {
  const float values[] = {1.5f, -2.0f};
  const uint16_t halves[] = {0x3f80, 0xbf80, 0x4000};
  std::string data(reinterpret_cast<const char*>(values), 8);
  data.append(reinterpret_cast<const char*>(halves), 6);
  Write(
      "m.safetensors",
      File(
          R"({"__metadata__": {"format": "pt"}, "b": {"dtype": "BF16", "shape": [3, 1], "data_offsets": [8, 14]},
                 "a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}})",
          data));
  const auto file = SafetensorsFile::Open(Path("m.safetensors"));
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_THAT(file->Names(), ElementsAre("a", "b"));
  EXPECT_EQ(file->metadata().at("format"), "pt");
  const auto a = file->Find("a");
  ASSERT_TRUE(a.ok());
  EXPECT_EQ(a->dtype, DType::kF32);
  EXPECT_EQ(a->As<float>()[1], -2.0f);
  const auto b = file->Find("b");
  ASSERT_TRUE(b.ok());
  EXPECT_THAT(b->shape, ElementsAre(3, 1));
  EXPECT_EQ(b->elements(), 3);
  EXPECT_EQ(ToFloat(b->As<BFloat16>()[2]), 2.0f);
  EXPECT_EQ(file->Find("c").status().code(), absl::StatusCode::kNotFound);
}

TEST_F(WeightsTest, AForeignTypeMayLieUnusedAndIsRefusedWhenAskedFor) {
  Write("m.safetensors",
        File(R"({"a": {"dtype": "F8_E4M3", "shape": [8], "data_offsets": [0, 8]}})", "12345678"));
  const auto file = SafetensorsFile::Open(Path("m.safetensors"));
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_THAT(std::string(file->Find("a").status().message()),
              AllOf(HasSubstr("tensor a"), HasSubstr("dtype=F8_E4M3"), HasSubstr("expected")));
}

TEST_F(WeightsTest, EveryLieOfAHeaderIsRefusedByName) {
  const std::string eight = "12345678";
  const auto entry = [](const char* dtype, const char* shape, const char* offsets) {
    return absl::StrCat(R"({"a": {"dtype": ")", dtype, R"(", "shape": )", shape, R"(, "data_offsets": )",
                        offsets, "}}");
  };
  EXPECT_THAT(Refusal(""), HasSubstr("file size=0"));
  EXPECT_THAT(Refusal("1234567"), HasSubstr("file size=7"));
  EXPECT_THAT(Refusal(std::string(8, '\xff') + "{}"), HasSubstr("header length=18446744073709551615"));
  EXPECT_THAT(Refusal(std::string("\x09\0\0\0\0\0\0\0{}", 10)),
              HasSubstr("header length=9, expected at most 2"));
  EXPECT_THAT(Refusal(File("[]", "")), HasSubstr("not a JSON object"));
  EXPECT_THAT(Refusal(File(R"({"a": 3})", "")), HasSubstr("a=3, expected an object"));
  EXPECT_THAT(Refusal(File(R"({"a": {"shape": [2], "data_offsets": [0, 8]}})", eight)),
              HasSubstr("dtype=missing"));
  EXPECT_THAT(Refusal(File(entry("F99", "[2]", "[0, 8]"), eight)), HasSubstr("dtype=F99"));
  EXPECT_THAT(Refusal(File(entry("F32", "[2.5]", "[0, 8]"), eight)), HasSubstr("shape=[2.5]"));
  EXPECT_THAT(Refusal(File(entry("F32", "[-2]", "[0, 8]"), eight)), HasSubstr("shape=[-2]"));
  EXPECT_THAT(Refusal(File(entry("F32", "[4611686018427387904, 4611686018427387904]", "[0, 8]"), eight)),
              HasSubstr("shape="));
  EXPECT_THAT(Refusal(File(entry("F32", "[4294967296, 4294967296, 4294967296]", "[0, 8]"), eight)),
              HasSubstr("whose product fits"));
  EXPECT_THAT(Refusal(File(entry("F32", "[2]", "[0]"), eight)), HasSubstr("data_offsets=[0]"));
  EXPECT_THAT(Refusal(File(entry("F32", "[2]", "[-8, 0]"), eight)), HasSubstr("data_offsets=[-8, 0]"));
  EXPECT_THAT(Refusal(File(entry("F32", "[2]", "[8, 0]"), eight)), HasSubstr("data_offsets=[8, 0]"));
  EXPECT_THAT(Refusal(File(entry("F32", "[3]", "[0, 8]"), eight)), HasSubstr("8 bytes, expected 12"));
  EXPECT_THAT(Refusal(File(kOne, "1234567")), AllOf(HasSubstr("tensor a"), HasSubstr("truncated")));
  EXPECT_THAT(Refusal(File(kOne, "123456789")), HasSubstr("data ends at 8, expected the file's 9"));
  EXPECT_THAT(Refusal(File(R"({"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]},
                               "b": {"dtype": "F32", "shape": [1], "data_offsets": [4, 8]}})",
                           eight)),
              AllOf(HasSubstr("tensor b"), HasSubstr("overlaps")));
  EXPECT_THAT(Refusal(File(entry("F32", "[1]", "[4, 8]"), eight)), HasSubstr("a gap"));
}

TEST_F(WeightsTest, MisalignedDataIsRefused) {
  std::string header = kOne;
  header.resize(header.size() / 8 * 8 + 9, ' ');
  const uint64_t length = header.size();
  EXPECT_THAT(Refusal(std::string(reinterpret_cast<const char*>(&length), 8) + header + "12345678"),
              HasSubstr("expected a multiple"));
}

TEST_F(WeightsTest, MissingFilesAndFoldersAreNamed) {
  EXPECT_EQ(SafetensorsFile::Open(Path("none")).status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(SafetensorsFile::Open(directory_).status().message()),
              HasSubstr("not a regular file"));
  EXPECT_THAT(std::string(Checkpoint::Open(directory_).status().message()),
              HasSubstr("model.safetensors.index.json"));
}

TEST_F(WeightsTest, ShardsAreFoundThroughTheIndex) {
  Write("one.safetensors", File(kOne, "12345678"));
  Write("two.safetensors", File(R"({"b": {"dtype": "U8", "shape": [3], "data_offsets": [0, 3]}})", "xyz"));
  Write("model.safetensors.index.json",
        R"({"weight_map": {"a": "one.safetensors", "b": "two.safetensors"}})");
  const auto checkpoint = Checkpoint::Open(directory_);
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
  EXPECT_THAT(checkpoint->Names(), ElementsAre("a", "b"));
  const auto b = checkpoint->Find("b");
  ASSERT_TRUE(b.ok());
  EXPECT_EQ(std::memcmp(b->data, "xyz", 3), 0);
  EXPECT_THAT(std::string(checkpoint->Find("c").status().message()), HasSubstr("tensor c: missing"));
}

TEST_F(WeightsTest, AnIndexThatLiesIsRefused) {
  Write("one.safetensors", File(kOne, "12345678"));
  const auto refusal = [&](const std::string& index) {
    Write("model.safetensors.index.json", index);
    const auto checkpoint = Checkpoint::Open(directory_);
    EXPECT_FALSE(checkpoint.ok()) << index;
    return std::string(checkpoint.status().message());
  };
  for (const char* name : {"../one.safetensors", "/etc/passwd", "sub/one.safetensors", "..", ""}) {
    EXPECT_THAT(refusal(absl::StrCat(R"({"weight_map": {"a": ")", name, "\"}}")),
                AllOf(HasSubstr("a="), HasSubstr("same directory")))
        << name;
  }
  EXPECT_THAT(refusal(R"({"weight_map": {"a": "two.safetensors"}})"), HasSubstr("two.safetensors"));
  EXPECT_THAT(refusal(R"({"weight_map": {"b": "one.safetensors"}})"), HasSubstr("tensor b"));
  EXPECT_THAT(refusal(R"({"weight_map": {}})"), HasSubstr("at least one"));
  EXPECT_THAT(refusal(R"({"weight_map": {"a": 3}})"), HasSubstr("a=3"));
  EXPECT_THAT(refusal(R"({})"), HasSubstr("weight_map=missing"));
  EXPECT_THAT(refusal("{"), HasSubstr("index.json"));
}

// A damaged header is refused, or what it says still lies inside the file.
TEST_F(WeightsTest, RandomDamageNeverLeadsOutsideTheFile) {
  const std::string whole = File(R"({"a": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]},
                                     "b": {"dtype": "BF16", "shape": [4], "data_offsets": [24, 32]}})",
                                 std::string(32, 'x'));
  std::mt19937 random(std::random_device{}());
  int opened = 0;
  for (int round = 0; round < 2000; ++round) {
    std::string damaged = whole;
    for (int flips = 1 + static_cast<int>(random() % 3); flips > 0; --flips) {
      damaged[random() % (damaged.size() - 32)] =
          static_cast<char>(random() % 4 == 0 ? random() : '0' + random() % 10);
    }
    Write("m.safetensors", damaged);
    const auto file = SafetensorsFile::Open(Path("m.safetensors"));
    if (!file.ok()) {
      EXPECT_THAT(std::string(file.status().message()), HasSubstr("m.safetensors"));
      continue;
    }
    ++opened;
    size_t bytes = 0;
    for (const std::string& name : file->Names()) {
      const auto tensor = file->Find(name);
      bytes += tensor.ok() ? tensor->bytes : 0;
    }
    EXPECT_LE(bytes, 32u);
  }
  EXPECT_GT(opened, 0) << "some flips only rename a tensor";
}

TEST_F(WeightsTest, Sha256IsTheKnownOne) {
  EXPECT_EQ(Sha256(std::string("abc")), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(Sha256(std::string()), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
}

TEST_F(WeightsTest, TheFingerprintFollowsEveryByteAndIsKeptBesideTheFiles) {
  Write("config.json", "{}");
  Write("model.safetensors", File(kOne, "12345678"));
  const auto first = CheckpointFingerprint(directory_);
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_TRUE(std::filesystem::exists(Path(".arborist-sha256")));
  EXPECT_EQ(*CheckpointFingerprint(directory_), *first);
  // The kept hash is used: a planted one shows through.
  {
    std::ifstream in(Path(".arborist-sha256"));
    std::string text((std::istreambuf_iterator<char>(in)), {});
    const size_t hash = text.find(Sha256(std::string("{}")));
    ASSERT_NE(hash, std::string::npos);
    text[hash] = text[hash] == '0' ? '1' : '0';
    std::ofstream(Path(".arborist-sha256")) << text;
  }
  EXPECT_NE(*CheckpointFingerprint(directory_), *first);
  // A changed file is hashed anew, also when its size stays.
  std::filesystem::remove(Path(".arborist-sha256"));
  Write("model.safetensors", File(kOne, "12345679"));
  const timespec times[2] = {{1000, 5}, {1000, 5}};
  ASSERT_EQ(::utimensat(AT_FDCWD, Path("model.safetensors").c_str(), times, 0), 0);
  const auto second = CheckpointFingerprint(directory_);
  ASSERT_TRUE(second.ok());
  EXPECT_NE(*second, *first);
  Write("model.safetensors", File(kOne, "12345678"));
  EXPECT_EQ(*CheckpointFingerprint(directory_), *first);
  // A damaged cache is worth nothing.
  Write(".arborist-sha256", "garbage\n\n1 2");
  EXPECT_EQ(*CheckpointFingerprint(directory_), *first);
  std::filesystem::remove(Path("config.json"));
  EXPECT_THAT(std::string(CheckpointFingerprint(directory_).status().message()), HasSubstr("config.json"));
}

}  // namespace
}  // namespace arborist
