#include "drafter/config.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace arborist::drafter {
namespace {

using ::testing::HasSubstr;

class DrafterConfigTest : public ::testing::Test {
 protected:
  ~DrafterConfigTest() override { std::filesystem::remove(path_); }
  absl::StatusOr<CommandLine> Read(const std::string& text, std::vector<std::string> words) {
    std::ofstream(path_) << text;
    words.push_back("--config=" + path_);
    std::vector<const char*> argv = {"arborist-drafter"};
    for (const std::string& word : words) {
      argv.push_back(word.c_str());
    }
    return ReadCommandLine(static_cast<int>(argv.size()), argv.data());
  }
  std::string With(const std::string& text, std::vector<std::string> words = {}) {
    words.insert(words.end(), {"--listen=unix:/tmp/d", "--verifier=unix:/tmp/v"});
    const auto line = Read(text, words);
    return line.ok() ? "no error" : std::string(line.status().message());
  }
  const std::string path_ =
      (std::filesystem::temp_directory_path() / ("drafter_config_test." + std::to_string(getpid()))).string();
};

TEST_F(DrafterConfigTest, ProposerFollowsTheModelUnlessNamed) {
  const auto kind = [this](std::vector<std::string> words) {
    words.insert(words.end(), {"--listen=unix:/tmp/d", "--verifier=unix:/tmp/v"});
    const auto line = Read("", words);
    EXPECT_TRUE(line.ok()) << line.status();
    return line->config.proposer;
  };
  EXPECT_EQ(kind({}), ProposerKind::kNgram);
  EXPECT_EQ(kind({"--model=/d", "--target=/t"}), ProposerKind::kDFlash);
  EXPECT_EQ(kind({"--model=/d", "--target=/t", "--proposer=ngram"}), ProposerKind::kNgram);
  EXPECT_THAT(With("", {"--proposer=dflash"}), HasSubstr("model=, expected the directory of the DFlash"));
  EXPECT_THAT(With("", {"--model=/d"}), HasSubstr("target=, expected the directory of the target"));
  EXPECT_THAT(With("", {"--proposer=magic"}), HasSubstr("--proposer=magic, expected dflash or ngram"));
}

TEST_F(DrafterConfigTest, DefaultsAreFilledInAndTheFileIsRead) {
  const auto line = Read(
      "rpc { listen: 'unix:/tmp/d' } verifier: 'host:1' coupled: false score_scale: 0.5 decode_tokens: 9 "
      "plain_decode_tokens: 99\n"
      "fault { point: FAULT_POINT_AFTER_TREE_SENT kind: FAULT_KIND_STALL round: 3 }",
      {});
  ASSERT_TRUE(line.ok()) << line.status();
  const Config& config = line->config;
  EXPECT_EQ(config.verifier, "host:1");
  EXPECT_FALSE(config.coupled);
  EXPECT_EQ(config.score_scale, 0.5f);
  EXPECT_EQ(config.decode_tokens, 9);
  EXPECT_EQ(config.plain_decode_tokens, 99);
  EXPECT_EQ(config.max_sequences, 64);
  EXPECT_EQ(config.fault.point, FaultPoint::kAfterTreeSent);
  EXPECT_EQ(config.fault.kind, FaultKind::kStall);
  EXPECT_EQ(config.fault.round, 3);
  const auto plain = Read("", {"--listen=unix:/tmp/d", "--verifier=unix:/tmp/v"});
  ASSERT_TRUE(plain.ok());
  EXPECT_TRUE(plain->config.coupled);
  EXPECT_EQ(plain->config.score_scale, 1.0f);
  EXPECT_EQ(plain->config.fault.point, FaultPoint::kNone);
}

TEST_F(DrafterConfigTest, DeviceAndItsMemoryAreReadFromFileAndFlags) {
  const auto line = Read("device: DEVICE_CPU gpu { index: 1 memory_fraction: 0.25 }",
                         {"--listen=unix:/tmp/d", "--verifier=unix:/tmp/v", "--device=cuda",
                          "--cuda-device=2", "--metrics-listen=127.0.0.1:9102", "--log-level=warning"});
  ASSERT_TRUE(line.ok()) << line.status();
  EXPECT_EQ(line->config.log_level, LogLevel::kWarning);
  EXPECT_EQ(line->config.metrics_listen, "127.0.0.1:9102");
  EXPECT_EQ(line->config.device.kind, DeviceKind::kCuda);
  EXPECT_EQ(line->config.device.cuda.index, 2);
  EXPECT_EQ(line->config.device.cuda.memory_fraction, 0.25);
  EXPECT_EQ(line->config.device.cuda.memory_limit, 0u);
}

TEST_F(DrafterConfigTest, WhatOnlyAGpuHasIsRefusedOnTheCpu) {
  EXPECT_THAT(With("gpu { index: 1 }"), HasSubstr("gpu.index=1, expected it only with device CUDA"));
  EXPECT_THAT(With("gpu { memory_bytes: 5 }"),
              HasSubstr("gpu.memory_bytes=5, expected it only with device CUDA"));
  EXPECT_THAT(With("gpu { memory_fraction: 0.5 }"), HasSubstr("gpu.memory_fraction=0.5, expected it only"));
  EXPECT_THAT(With("device: DEVICE_CPU", {"--gpu-trace=/tmp/t"}),
              HasSubstr("gpu.trace_path=/tmp/t, expected it"));
  EXPECT_THAT(With("", {"--gpu-launch-by-launch"}), HasSubstr("gpu.launch_by_launch=true, expected it only"));
  EXPECT_THAT(With("", {"--gpu-memory=7"}), HasSubstr("gpu.memory_bytes=7, expected it only"));
  EXPECT_EQ(With("gpu { fault { kind: DEVICE_FAULT_KIND_OUT_OF_MEMORY } }"), "no error");
}

TEST_F(DrafterConfigTest, EveryBadValueIsRefusedByName) {
  EXPECT_EQ(With(""), "no error");
  EXPECT_THAT(With("score_scale: -1"), HasSubstr("score_scale=-1"));
  EXPECT_THAT(With("score_scale: nan"), HasSubstr("score_scale=nan"));
  EXPECT_THAT(With("decode_tokens: 1025"), HasSubstr("decode_tokens=1025, expected a value in [1, 1024]"));
  EXPECT_THAT(With("max_sequences: -1"), HasSubstr("max_sequences=-1"));
  EXPECT_THAT(With("threads: 2000"), HasSubstr("threads=2000"));
  EXPECT_THAT(With("gpu { index: -1 }"), HasSubstr("gpu.index=-1"));
  EXPECT_THAT(With("gpu { memory_bytes: -1 }"), HasSubstr("gpu.memory_bytes=-1"));
  EXPECT_THAT(With("gpu { memory_fraction: 1.5 }"), HasSubstr("gpu.memory_fraction=1.5"));
  EXPECT_THAT(With("gpu { memory_fraction: 0.5 memory_bytes: 1 }"),
              HasSubstr("gpu.memory_fraction=0.5, expected 0 beside memory_bytes"));
  EXPECT_THAT(With("gpu { fault { kind: DEVICE_FAULT_KIND_LAUNCH_ERROR } }"),
              HasSubstr("gpu.fault.trigger_path="));
  EXPECT_THAT(With("gpu { fault { kind: DEVICE_FAULT_KIND_ILLEGAL_ACCESS trigger_path: \"x\" } }"),
              HasSubstr("gpu.fault.memory="));
  EXPECT_THAT(With("gpu { fault { kind: DEVICE_FAULT_KIND_OUT_OF_MEMORY allocation: -1 } }"),
              HasSubstr("gpu.fault.allocation=-1"));
  EXPECT_THAT(With("", {"--device=tpu"}), HasSubstr("--device=tpu, expected cpu or cuda"));
  EXPECT_THAT(With("fault { round: -1 }"), HasSubstr("fault.round=-1"));
  EXPECT_THAT(With("fault { kind: FAULT_KIND_MAYBE }"), HasSubstr("FAULT_KIND_MAYBE"));
  EXPECT_THAT(With("unknown_field: 1"), HasSubstr(path_ + ":1:"));
  const auto no_verifier = Read("", {"--listen=unix:/tmp/d"});
  EXPECT_THAT(std::string(no_verifier.status().message()), HasSubstr("verifier=, expected"));
  EXPECT_THAT(With("metrics { listen: 'unix:/tmp/m' }"),
              HasSubstr("metrics.listen=unix:/tmp/m, expected ip:port"));
  EXPECT_THAT(With("", {"--verifier=nonsense"}), "no error");  // a later flag wins
}

}  // namespace
}  // namespace arborist::drafter
