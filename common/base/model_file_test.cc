#include "common/base/model_file.h"

#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace arborist {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class ModelFileTest : public ::testing::Test {
 protected:
  ModelFileTest() : top_(fs::temp_directory_path() / ("model_file_test." + std::to_string(getpid()))) {
    fs::create_directories(top_ / "model");
  }
  ~ModelFileTest() override { fs::remove_all(top_); }

  fs::path Write(const std::string& name, const std::string& text) {
    fs::create_directories((top_ / name).parent_path());
    std::ofstream(top_ / name) << text;
    return top_ / name;
  }
  std::string Refusal(const std::string& name) {
    const absl::StatusOr<std::string> bytes = ReadModelFile(top_ / name, 100);
    EXPECT_FALSE(bytes.ok()) << name;
    EXPECT_THAT(std::string(bytes.status().message()), HasSubstr((top_ / name).string()));
    return std::string(bytes.status().message());
  }

  fs::path top_;
};

TEST_F(ModelFileTest, AFileIsReadInFull) {
  const std::string text("a\0b\n", 4);
  EXPECT_EQ(*ReadModelFile(Write("model/file", text), 4), text);
  EXPECT_EQ(*ReadModelFile(Write("model/empty", ""), 4), "");
}

TEST_F(ModelFileTest, ALinkMayStayInsideTheDirectoryOrLeadToTheBlobsOfItsCache) {
  Write("model/..data/file", "volume");
  fs::create_symlink("..data/file", top_ / "model/linked");
  EXPECT_EQ(*ReadModelFile(top_ / "model/linked", 100), "volume");
  fs::create_directory_symlink(top_ / "model", top_ / "alias");
  EXPECT_EQ(*ReadModelFile(top_ / "alias/linked", 100), "volume");

  Write("cache/blobs/0123", "blob");
  fs::create_directories(top_ / "cache/snapshots/main");
  fs::create_symlink("../../blobs/0123", top_ / "cache/snapshots/main/config.json");
  EXPECT_EQ(*ReadModelFile(top_ / "cache/snapshots/main/config.json", 100), "blob");
}

TEST_F(ModelFileTest, ALinkThatLeadsOutsideIsRefusedAndSaysWhere) {
  const fs::path secret = Write("secret", "s");
  Write("model-2/file", "a folder whose name only begins alike");
  Write("other/blobs/0123", "another model's");
  fs::create_directories(top_ / "cache/snapshots/main");
  fs::create_symlink(secret, top_ / "model/absolute");
  fs::create_symlink("../secret", top_ / "model/relative");
  fs::create_symlink("../model-2/file", top_ / "model/alike");
  fs::create_symlink("absolute", top_ / "model/twice");
  fs::create_symlink(top_ / "other/blobs/0123", top_ / "cache/snapshots/main/foreign");
  for (const char* name :
       {"model/absolute", "model/relative", "model/alike", "model/twice", "cache/snapshots/main/foreign"}) {
    EXPECT_THAT(Refusal(name), HasSubstr("is a symbolic link to ")) << name;
  }
  EXPECT_THAT(Refusal("model/absolute"), HasSubstr(secret.string() + ", expected a file inside "));
}

TEST_F(ModelFileTest, WhatIsNotAFileIsRefusedWithoutWaiting) {
  ASSERT_EQ(mkfifo((top_ / "model/pipe").c_str(), 0600), 0);
  fs::create_directories(top_ / "model/folder");
  fs::create_symlink("nowhere", top_ / "model/dangling");
  fs::create_symlink("loop", top_ / "model/loop");
  EXPECT_THAT(Refusal("model/pipe"), HasSubstr("not a regular file"));
  EXPECT_THAT(Refusal("model/folder"), HasSubstr("not a regular file"));
  EXPECT_THAT(Refusal("model/dangling"), HasSubstr("No such file"));
  EXPECT_TRUE(HasModelFile(top_ / "model/dangling"));
  EXPECT_FALSE(HasModelFile(top_ / "model/none"));
  EXPECT_THAT(Refusal("model/loop"), HasSubstr("cannot be opened"));
  EXPECT_THAT(Refusal("model/none"), HasSubstr("No such file"));
  EXPECT_EQ(CheckModelFile(top_ / "none/file").code(), absl::StatusCode::kNotFound);
  Write("model/large", std::string(101, 'x'));
  EXPECT_THAT(Refusal("model/large"), HasSubstr("size=101 bytes, expected at most 100"));
}

}  // namespace
}  // namespace arborist
