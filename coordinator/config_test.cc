#include "coordinator/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>

namespace arborist::coordinator {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

absl::StatusOr<CommandLine> Read(std::vector<std::string> words) {
  words.insert(words.begin(), "arborist-coordinator");
  std::vector<const char*> argv;
  for (const std::string& word : words) {
    argv.push_back(word.c_str());
  }
  return ReadCommandLine(static_cast<int>(argv.size()), argv.data());
}

std::string File(const std::string& text) {
  const std::string path = ::testing::TempDir() + "/coordinator.textproto";
  std::ofstream(path) << text;
  return path;
}

const std::vector<std::string> kLeast = {"--listen", "127.0.0.1:0", "--verifier",
                                         "unix:/v",  "--tokenizer", "dir"};

std::string Mistake(std::vector<std::string> words) {
  words.insert(words.begin(), kLeast.begin(), kLeast.end());
  const auto line = Read(words);
  EXPECT_EQ(line.status().code(), absl::StatusCode::kInvalidArgument);
  return std::string(line.status().message());
}

TEST(ConfigTest, DefaultsFillWhatIsNotSaid) {
  const auto line = Read(kLeast);
  ASSERT_TRUE(line.ok()) << line.status();
  EXPECT_THAT(line->config.verifiers, ElementsAre("unix:/v"));
  EXPECT_TRUE(line->config.drafters.empty());
  EXPECT_EQ(line->config.max_requests, 256);
  EXPECT_EQ(line->config.default_mode, Mode::kAuto);
  EXPECT_EQ(line->config.default_tree_nodes, 16);
  EXPECT_EQ(line->config.max_timeout, absl::Hours(1));
  EXPECT_EQ(line->config.rpc.peer_silence, DefaultPeerSilence());
}

TEST(ConfigTest, FlagsOverrideTheFileAndListsReplaceItsLists) {
  const std::string path = File(
      "rpc { listen: '127.0.0.1:1' } verifiers: 'unix:/a' verifiers: 'unix:/b' drafters: 'unix:/c' "
      "tokenizer: 'x' "
      "max_requests: 3 default_mode: SPECULATION_MODE_CHAIN metrics { listen: '127.0.0.1:9103' }");
  const auto line = Read({"--verifier", "unix:/v", "--config", path, "--verifier", "unix:/w"});
  ASSERT_TRUE(line.ok()) << line.status();
  EXPECT_THAT(line->config.verifiers, ElementsAre("unix:/v", "unix:/w"));
  EXPECT_THAT(line->config.drafters, ElementsAre("unix:/c"));
  EXPECT_THAT(line->config.rpc.server.listen, ElementsAre("127.0.0.1:1"));
  EXPECT_EQ(line->config.tokenizer, "x");
  EXPECT_EQ(line->config.max_requests, 3);
  EXPECT_EQ(line->config.default_mode, Mode::kChain);
  EXPECT_EQ(line->config.metrics_listen, "127.0.0.1:9103");
}

TEST(ConfigTest, TheLogLevelIsThatOfTheFlagThenOfTheFile) {
  std::vector<std::string> words = kLeast;
  EXPECT_EQ(Read(words)->config.log_level, LogLevel::kInfo);
  words.insert(words.end(), {"--config", File("log_level: LOG_LEVEL_WARNING")});
  EXPECT_EQ(Read(words)->config.log_level, LogLevel::kWarning);
  words.insert(words.end(), {"--log-level", "error"});
  EXPECT_EQ(Read(words)->config.log_level, LogLevel::kError);
}

TEST(ConfigTest, TheMostAnswersOfARequestAreNeverMoreThanThoseAtOnce) {
  std::vector<std::string> words = kLeast;
  EXPECT_EQ(Read(words)->config.max_samples, 128);
  words.insert(words.end(), {"--max-samples", "1024"});
  EXPECT_EQ(Read(words)->config.max_samples, 256);
  words.insert(words.end(), {"--max-requests", "5"});
  EXPECT_EQ(Read(words)->config.max_samples, 5);
}

TEST(ConfigTest, TheShippedFileIsValid) {
  const std::string source = std::getenv("ARBORIST_SOURCE_DIR");
  const auto line = Read({"--config", source + "/deploy/config/coordinator.textproto"});
  ASSERT_TRUE(line.ok()) << line.status();
  EXPECT_EQ(line->config.rpc.server.listen.size(), 2u);
}

TEST(ConfigTest, MistakesNameFieldValueAndExpectation) {
  EXPECT_THAT(std::string(Read({}).status().message()), HasSubstr("rpc.listen"));
  EXPECT_THAT(std::string(Read({"--listen", "127.0.0.1:0"}).status().message()),
              HasSubstr("verifiers=0 addresses"));
  EXPECT_THAT(std::string(Read({"--listen", "127.0.0.1:0", "--verifier", "unix:/v"}).status().message()),
              HasSubstr("tokenizer"));
  EXPECT_THAT(Mistake({"--drafter", "nowhere"}), HasSubstr("drafters[0]=nowhere"));
  EXPECT_THAT(Mistake({"--max-requests", "0"}), HasSubstr("--max-requests=0, expected"));
  EXPECT_THAT(Mistake({"--bogus"}), HasSubstr("--bogus"));
  EXPECT_THAT(Mistake({"--config", File("default_tree_nodes: 256")}), HasSubstr("default_tree_nodes=256"));
  EXPECT_THAT(Mistake({"--config", File("max_timeout_ms: -1")}), HasSubstr("max_timeout_ms=-1"));
  EXPECT_THAT(Mistake({"--config", File("max_unsent_bytes: 99999999")}),
              HasSubstr("max_unsent_bytes=99999999"));
  EXPECT_THAT(Mistake({"--config", File("bogus: 1")}), HasSubstr("bogus"));
  EXPECT_THAT(Mistake({"--config", File("max_samples: 1025")}), HasSubstr("max_samples=1025"));
  EXPECT_THAT(Mistake({"--log-level", "loud"}),
              HasSubstr("--log-level=loud, expected info, warning or error"));
  EXPECT_THAT(Mistake({"--config", File("log_level: 9")}), HasSubstr("log_level=9, expected INFO, WARNING"));
  EXPECT_THAT(Mistake({"--metrics-listen", "unix:/m"}),
              HasSubstr("metrics.listen=unix:/m, expected ip:port"));
  EXPECT_EQ(Read({"--config", "/nonexistent"}).status().code(), absl::StatusCode::kNotFound);
}

TEST(ConfigTest, HelpNeedsNothingElse) { EXPECT_THAT(Read({"--help"})->help, HasSubstr("--tokenizer")); }

}  // namespace
}  // namespace arborist::coordinator
