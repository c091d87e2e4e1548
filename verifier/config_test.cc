#include "verifier/config.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace arborist::verifier {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

absl::StatusOr<CommandLine> Read(std::vector<std::string> words) {
  std::vector<const char*> argv = {"arborist-verifier"};
  for (const std::string& word : words) {
    argv.push_back(word.c_str());
  }
  return ReadCommandLine(static_cast<int>(argv.size()), argv.data());
}

std::string Message(const absl::StatusOr<CommandLine>& line) {
  return line.ok() ? "no error" : std::string(line.status().message());
}

class VerifierConfigTest : public ::testing::Test {
 protected:
  ~VerifierConfigTest() override { std::filesystem::remove(path_); }
  absl::StatusOr<CommandLine> ReadFile(const std::string& text, std::vector<std::string> words = {}) {
    std::ofstream(path_) << text;
    words.push_back("--config=" + path_);
    return Read(words);
  }
  const std::string path_ =
      (std::filesystem::temp_directory_path() / ("verifier_config_test." + std::to_string(getpid())))
          .string();
};

TEST_F(VerifierConfigTest, DefaultsAreFilledIn) {
  const auto line = Read({"--listen", "unix:/tmp/v", "--model", "/models/tiny/"});
  ASSERT_TRUE(line.ok()) << line.status();
  const Config& config = line->config;
  EXPECT_THAT(config.rpc.server.listen, ElementsAre("unix:/tmp/v"));
  EXPECT_EQ(config.rpc.peer_silence, DefaultPeerSilence());
  EXPECT_EQ(config.rpc.server.drain, std::chrono::seconds(30));
  EXPECT_EQ(config.model_name, "tiny");
  EXPECT_GE(config.threads, 1);
  EXPECT_EQ(config.max_sequences, 64);
  EXPECT_EQ(config.max_step_rows, 512);
  EXPECT_EQ(config.prefill_chunk, 512);
  EXPECT_EQ(config.max_tree_nodes, 255);
  EXPECT_FALSE(config.cut_trees_seed.has_value());
  EXPECT_EQ(config.metrics_listen, "");
  EXPECT_EQ(config.shadow.fraction, 0);
  EXPECT_FALSE(config.shadow_not_serving);
}

TEST_F(VerifierConfigTest, FlagsOverrideTheFile) {
  const auto line = ReadFile(
      "# a comment\nrpc { listen: 'unix:/tmp/file' listen: 'unix:/tmp/two' peer_silence_ms: 900 }\n"
      "model: '/a' threads: 3 kv_pages: 7 cut_trees_seed: 0 stall_ms: 200 max_tree_nodes: 31 max_step_rows: "
      "33",
      {"--listen=127.0.0.1:0", "--threads", "2", "--model=/b/c", "--drafter=/d", "--device=cpu"});
  ASSERT_TRUE(line.ok()) << line.status();
  const Config& config = line->config;
  EXPECT_THAT(config.rpc.server.listen, ElementsAre("127.0.0.1:0"));
  EXPECT_EQ(config.rpc.peer_silence, std::chrono::milliseconds(900));
  EXPECT_EQ(config.threads, 2);
  EXPECT_EQ(config.model, "/b/c");
  EXPECT_EQ(config.drafter, "/d");
  EXPECT_EQ(config.kv_pages, 7);
  EXPECT_EQ(config.cut_trees_seed, 0u);
  EXPECT_EQ(config.stall_limit, std::chrono::milliseconds(200));
  EXPECT_EQ(config.max_step_rows, 33);
}

TEST_F(VerifierConfigTest, KvIsBf16OnAGpuAndF32OnTheCpuUnlessSaidOtherwise) {
  const auto kv_type = [this](std::vector<std::string> flags) {
    flags.insert(flags.end(), {"--listen=unix:/tmp/v", "--model=/m"});
    const auto line = ReadFile("", flags);
    EXPECT_TRUE(line.ok()) << line.status();
    return line->config.kv_type;
  };
  EXPECT_EQ(kv_type({}), DType::kF32);
  EXPECT_EQ(kv_type({"--device=cuda"}), DType::kBF16);
  EXPECT_EQ(kv_type({"--device=cuda", "--kv-type=f32"}), DType::kF32);
}

TEST_F(VerifierConfigTest, AStepHoldsMoreTreesOnAGpuButNoMorePrompt) {
  const auto line = ReadFile("", {"--listen=unix:/tmp/v", "--model=/m", "--device=cuda"});
  ASSERT_TRUE(line.ok()) << line.status();
  EXPECT_EQ(line->config.max_step_rows, 32 * 65);
  EXPECT_EQ(line->config.prefill_chunk, 512);
  const auto small = ReadFile("max_step_rows: 300", {"--listen=unix:/tmp/v", "--model=/m", "--device=cuda"});
  ASSERT_TRUE(small.ok()) << small.status();
  EXPECT_EQ(small->config.prefill_chunk, 300);
}

TEST_F(VerifierConfigTest, NumericsAreExactUnlessAGpuIsToldToBeFast) {
  const auto numerics = [this](std::vector<std::string> flags) {
    flags.insert(flags.end(), {"--listen=unix:/tmp/v", "--model=/m"});
    const auto line = ReadFile("", flags);
    EXPECT_TRUE(line.ok()) << line.status();
    return line->config.numerics;
  };
  EXPECT_EQ(numerics({}), kernels::Numerics::kExact);
  EXPECT_EQ(numerics({"--device=cuda"}), kernels::Numerics::kExact);
  EXPECT_EQ(numerics({"--numerics=exact"}), kernels::Numerics::kExact);
  EXPECT_EQ(numerics({"--device=cuda", "--numerics=fast"}), kernels::Numerics::kFast);
}

TEST_F(VerifierConfigTest, ErrorsNameFileLineAndField) {
  EXPECT_THAT(Message(ReadFile("model: '/a'\nmodle: '/b'\n")), HasSubstr(path_ + ":2:"));
  EXPECT_THAT(Message(ReadFile("model: '/a'\nmodle: '/b'\n")), HasSubstr("modle"));
  EXPECT_THAT(Message(ReadFile("threads: 'two'")), HasSubstr(":1:"));
  EXPECT_THAT(Message(ReadFile("device: DEVICE_TPU")), HasSubstr("DEVICE_TPU"));
  EXPECT_THAT(Message(ReadFile("model: '/a' model: '/b'")), HasSubstr("model"));
  EXPECT_THAT(Message(Read({"--config=/does/not/exist"})), HasSubstr("--config=/does/not/exist, expected"));
}

TEST_F(VerifierConfigTest, EveryBadValueIsRefusedByName) {
  const auto with = [this](const std::string& text) {
    return Message(ReadFile(text, {"--listen=unix:/tmp/v", "--model=/m"}));
  };
  EXPECT_EQ(with(""), "no error");
  EXPECT_THAT(Message(Read({"--listen=unix:/tmp/v"})), HasSubstr("model=, expected the directory"));
  EXPECT_THAT(Message(Read({"--model=/m"})), HasSubstr("rpc.listen count=0"));
  EXPECT_THAT(Message(Read({"--model=/m", "--listen=nonsense"})), HasSubstr("rpc.listen=nonsense"));
  EXPECT_THAT(Message(Read({"--model=/m", "--listen=h:70000"})), HasSubstr("rpc.listen=h:70000"));
  EXPECT_THAT(Message(Read({"--model=/m", "--listen=unix:"})), HasSubstr("rpc.listen=unix:"));
  EXPECT_THAT(with("kv_type: KV_TYPE_BF16"), HasSubstr("kv_type=KV_TYPE_BF16, expected F32 on the CPU"));
  EXPECT_EQ(with("device: DEVICE_CUDA kv_type: KV_TYPE_BF16"), "no error");
  EXPECT_THAT(with("numerics: NUMERICS_FAST"),
              HasSubstr("numerics=NUMERICS_FAST, expected EXACT on the CPU"));
  EXPECT_THAT(with("device: DEVICE_CUDA numerics: 7"), HasSubstr("numerics=7, expected EXACT or FAST"));
  EXPECT_THAT(with("threads: -1"), HasSubstr("threads=-1, expected a value in [1, 1024]"));
  EXPECT_THAT(with("kv_pages: -1"), HasSubstr("kv_pages=-1"));
  EXPECT_THAT(with("max_sequences: 5000"), HasSubstr("max_sequences=5000"));
  EXPECT_THAT(with("max_queue: -2"), HasSubstr("max_queue=-2"));
  EXPECT_THAT(with("max_tree_nodes: 256"), HasSubstr("max_tree_nodes=256, expected a value in [1, 255]"));
  EXPECT_THAT(with("max_step_rows: 256"), HasSubstr("max_step_rows=256, expected a value in [257, 8192]"));
  EXPECT_THAT(with("prefill_chunk: 513"), HasSubstr("prefill_chunk=513"));
  EXPECT_THAT(with("context_length: -1"), HasSubstr("context_length=-1"));
  EXPECT_THAT(with("context_length: 1"), HasSubstr("context_length=1, expected a value in [2, 16777216]"));
  EXPECT_THAT(with("stall_ms: 1"), HasSubstr("stall_ms=1"));
  EXPECT_THAT(with("rpc { peer_silence_ms: 10 }"), HasSubstr("rpc.peer_silence_ms=10"));
  EXPECT_THAT(with("rpc { drain_ms: -1 }"), HasSubstr("rpc.drain_ms=-1"));
  EXPECT_THAT(with("rpc { max_message_bytes: 5 }"), HasSubstr("rpc.max_message_bytes=5"));
  EXPECT_THAT(with("rpc { max_concurrent_streams: -5 }"), HasSubstr("rpc.max_concurrent_streams=-5"));
}

TEST_F(VerifierConfigTest, ShadowVerificationAndMetricsAreReadAndChecked) {
  const auto with = [this](const std::string& text, std::vector<std::string> flags = {}) {
    flags.insert(flags.end(), {"--listen=unix:/tmp/v", "--model=/m"});
    return ReadFile(text, flags);
  };
  const auto line = with(
      "metrics { listen: '127.0.0.1:9101' } shadow { fraction: 0.5 rows: 7 relative_limit: 0.25 "
      "kernels: SHADOW_KERNEL_MOE_ROUTE kernels: SHADOW_KERNEL_KV_COMPACT not_serving_on_fault: true }");
  ASSERT_TRUE(line.ok()) << line.status();
  EXPECT_EQ(line->config.metrics_listen, "127.0.0.1:9101");
  EXPECT_EQ(line->config.shadow.fraction, 0.5);
  EXPECT_EQ(line->config.shadow.rows, 7);
  EXPECT_EQ(line->config.shadow.relative_limit, 0.25);
  EXPECT_THAT(line->config.shadow.kernels, ElementsAre(ShadowKernel::kMoeRoute, ShadowKernel::kKvCompact));
  EXPECT_TRUE(line->config.shadow_not_serving);

  const auto defaults =
      with("", {"--shadow-fraction=0.01", "--metrics-listen=0.0.0.0:9101", "--log-level=error"});
  ASSERT_TRUE(defaults.ok()) << defaults.status();
  EXPECT_EQ(defaults->config.log_level, LogLevel::kError);
  EXPECT_EQ(defaults->config.metrics_listen, "0.0.0.0:9101");
  EXPECT_FLOAT_EQ(static_cast<float>(defaults->config.shadow.fraction), 0.01f);
  EXPECT_EQ(defaults->config.shadow.rows, 4);
  EXPECT_EQ(defaults->config.shadow.relative_limit, 0.001);
  EXPECT_EQ(with("", {"--device=cuda"})->config.shadow.relative_limit, 0.03);

  EXPECT_THAT(Message(with("shadow { fraction: 1.5 }")),
              HasSubstr("shadow.fraction=1.5, expected a value in [0, 1]"));
  EXPECT_THAT(Message(with("shadow { fraction: nan }")), HasSubstr("shadow.fraction=nan"));
  EXPECT_THAT(Message(with("shadow { relative_limit: -1 }")), HasSubstr("shadow.relative_limit=-1"));
  EXPECT_THAT(Message(with("shadow { rows: 65 }")), HasSubstr("shadow.rows=65, expected a value in [1, 64]"));
  EXPECT_THAT(Message(with("shadow { kernels: [SHADOW_KERNEL_MOE_ROUTE, SHADOW_KERNEL_MOE_ROUTE] }")),
              HasSubstr("shadow.kernels=SHADOW_KERNEL_MOE_ROUTE, expected each kernel once"));
  EXPECT_THAT(Message(with("shadow { kernels: SHADOW_KERNEL_UNSPECIFIED }")),
              HasSubstr("shadow.kernels=0, expected"));
  EXPECT_THAT(Message(with("shadow { kernels: SHADOW_KERNEL_RECORDED_STEP }")),
              HasSubstr("shadow.kernels=RECORDED_STEP, expected it only with device CUDA"));
  EXPECT_EQ(Message(with("device: DEVICE_CUDA shadow { kernels: SHADOW_KERNEL_RECORDED_STEP }")), "no error");
  EXPECT_THAT(
      Message(
          with("device: DEVICE_CUDA numerics: NUMERICS_FAST shadow { kernels: SHADOW_KERNEL_KV_COMPACT }")),
      HasSubstr("shadow.kernels=KV_COMPACT, expected it only with numerics EXACT"));
  EXPECT_THAT(Message(with("metrics { listen: 'unix:/tmp/m' }")),
              HasSubstr("metrics.listen=unix:/tmp/m, expected ip:port"));
  EXPECT_THAT(Message(with("metrics { listen: '999.1.1.1:9101' }")),
              HasSubstr("metrics.listen=999.1.1.1:9101, expected ip:port"));
  EXPECT_TRUE(with("metrics { listen: '[::1]:9101' }").ok());
  EXPECT_THAT(Message(with("model_name: 'a\\xff'")), HasSubstr("model_name=a\\xff, expected UTF-8"));
  EXPECT_THAT(Message(with("metrics { listen: 'nonsense' }")),
              HasSubstr("metrics.listen=nonsense, expected ip:port"));
  EXPECT_THAT(Message(with("", {"--shadow-fraction=half"})),
              HasSubstr("--shadow-fraction=half, expected a value in [0, 1]"));
  EXPECT_THAT(Message(with("", {"--shadow-fraction=2"})), HasSubstr("--shadow-fraction=2"));
}

TEST_F(VerifierConfigTest, BadCommandLinesAreRefused) {
  EXPECT_THAT(Message(Read({"--modell=/m"})), HasSubstr("--modell is unknown"));
  EXPECT_THAT(Message(Read({"stray"})), HasSubstr("argument=stray"));
  EXPECT_THAT(Message(Read({"--model"})), HasSubstr("--model has no value"));
  EXPECT_THAT(Message(Read({"--threads=two"})), HasSubstr("--threads=two, expected an integer"));
  EXPECT_THAT(Message(Read({"--threads=0"})), HasSubstr("--threads=0"));
  EXPECT_THAT(Message(Read({"--device=tpu"})), HasSubstr("--device=tpu, expected cpu or cuda"));
  EXPECT_THAT(Message(Read({"--kv-type=fp8"})), HasSubstr("--kv-type=fp8, expected f32 or bf16"));
  EXPECT_THAT(Message(Read({"--numerics=exactly"})), HasSubstr("--numerics=exactly, expected exact or fast"));
  EXPECT_THAT(Message(Read({"--help=yes"})), HasSubstr("without a value"));
  const auto help = Read({"--help"});
  ASSERT_TRUE(help.ok());
  EXPECT_THAT(help->help, HasSubstr("--kv-pages VALUE"));
}

}  // namespace
}  // namespace arborist::verifier
