#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <thread>

#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "common/rpc/server.h"
#include "coordinator/cli/client.h"
#include "coordinator/cli/generate_flags.h"
#include "coordinator/cli/json_writer.h"

namespace arborist::coordinator {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr const char* kHelp[] = {"arborist", "generate", "--help"};

absl::StatusOr<GenerateFlags> Parse(std::vector<const char*> words) {
  words.insert(words.begin(), "generate");
  GenerateFlags flags;
  const absl::Status status = ParseGenerateFlags(static_cast<int>(words.size()), words.data(), flags);
  return status.ok() ? absl::StatusOr<GenerateFlags>(std::move(flags)) : status;
}

std::string Mistake(std::vector<const char*> words) {
  const auto flags = Parse(std::move(words));
  EXPECT_EQ(flags.status().code(), absl::StatusCode::kInvalidArgument);
  return std::string(flags.status().message());
}

TEST(GenerateFlagsTest, EveryFlagReachesItsField) {
  const auto flags = Parse({"--address",
                            "unix:/tmp/x",
                            "--prompt",
                            "hi",
                            "--max-tokens=5",
                            "--temperature",
                            "0.5",
                            "--top-p",
                            "0.9",
                            "--top-k",
                            "3",
                            "--min-p",
                            "0.1",
                            "--seed",
                            "18446744073709551615",
                            "--stop",
                            "a",
                            "--stop",
                            "b",
                            "--stop-id",
                            "7",
                            "--ignore-eos",
                            "--speculation",
                            "chain",
                            "--tree-nodes",
                            "9",
                            "--timeout",
                            "2s",
                            "--json"});
  ASSERT_TRUE(flags.ok()) << flags.status();
  const v1::GenerateRequest& request = flags->request;
  EXPECT_EQ(flags->connection.address, "unix:/tmp/x");
  EXPECT_EQ(flags->connection.timeout, absl::Seconds(2));
  EXPECT_EQ(request.text(), "hi");
  EXPECT_EQ(request.max_tokens(), 5);
  EXPECT_EQ(request.temperature(), 0.5f);
  EXPECT_EQ(request.top_p(), 0.9f);
  EXPECT_EQ(request.top_k(), 3);
  EXPECT_EQ(request.min_p(), 0.1f);
  EXPECT_EQ(request.seed(), UINT64_MAX);
  EXPECT_THAT(request.stop(), ElementsAre("a", "b"));
  EXPECT_THAT(request.stop_ids(), ElementsAre(7));
  EXPECT_TRUE(request.ignore_eos());
  EXPECT_EQ(request.speculation().mode(), v1::SPECULATION_MODE_CHAIN);
  EXPECT_EQ(request.speculation().tree_nodes(), 9);
  EXPECT_TRUE(flags->json);
}

TEST(GenerateFlagsTest, WhatIsNotGivenStaysUnset) {
  const auto flags = Parse({"--token-ids", "1,2,3"});
  ASSERT_TRUE(flags.ok());
  EXPECT_THAT(flags->request.token_ids().ids(), ElementsAre(1, 2, 3));
  EXPECT_FALSE(flags->request.has_temperature());
  EXPECT_FALSE(flags->request.has_seed());
  EXPECT_FALSE(flags->request.has_max_tokens());
}

TEST(GenerateFlagsTest, AFileIsThePromptWithEveryByteOfIt) {
  const std::string path = ::testing::TempDir() + "/prompt.txt";
  std::ofstream(path) << "line\n\n";
  EXPECT_EQ(Parse({"--prompt-file", path.c_str()})->request.text(), "line\n\n");
}

TEST(GenerateFlagsTest, ChatMakesMessages) {
  const auto flags = Parse({"--chat", "--system", "be brief", "--prompt", "hi"});
  ASSERT_TRUE(flags.ok());
  ASSERT_EQ(flags->request.chat().messages_size(), 2);
  EXPECT_EQ(flags->request.chat().messages(0).role(), "system");
  EXPECT_EQ(flags->request.chat().messages(1).content(), "hi");
}

TEST(GenerateFlagsTest, MistakesNameTheFlag) {
  EXPECT_THAT(Mistake({}), HasSubstr("exactly one of --prompt"));
  EXPECT_THAT(Mistake({"--prompt", "a", "--token-ids", "1"}), HasSubstr("exactly one of"));
  EXPECT_THAT(Mistake({"--token-ids", "1,x"}), HasSubstr("--token-ids has x"));
  EXPECT_THAT(Mistake({"--prompt", "a", "--temperature", "hot"}), HasSubstr("--temperature=hot"));
  EXPECT_THAT(Mistake({"--prompt", "a", "--seed", "-1"}), HasSubstr("--seed=-1"));
  EXPECT_THAT(Mistake({"--prompt", "a", "--speculation", "fast"}), HasSubstr("--speculation=fast"));
  EXPECT_THAT(Mistake({"--prompt", "a", "--timeout", "soon"}), HasSubstr("--timeout=soon"));
  EXPECT_THAT(Mistake({"--prompt", "\xff"}), HasSubstr("--prompt has a byte at 0 that is not UTF-8"));
  EXPECT_THAT(Mistake({"--prompt-file", "/nonexistent"}), HasSubstr("--prompt-file=/nonexistent"));
  EXPECT_THAT(Mistake({"--prompt", "a", "--system", "b"}), HasSubstr("--system"));
  EXPECT_THAT(Mistake({"--chat", "--token-ids", "1"}), HasSubstr("--chat"));
  EXPECT_THAT(Mistake({"--bogus"}), HasSubstr("--bogus"));
}

TEST(ClientTest, AWrongCommandLineIsStatusTwoAndALostServerStatusOne) {
  const char* unknown[] = {"arborist", "dance"};
  EXPECT_EQ(RunClient(2, unknown), 2);
  const char* none[] = {"arborist"};
  EXPECT_EQ(RunClient(1, none), 2);
  const char* no_server[] = {"arborist", "model", "--address", "unix:/nonexistent/socket", "--timeout", "2s"};
  EXPECT_EQ(RunClient(6, no_server), 1);
}

TEST(ClientTest, ABatchNeedsAFileOfRequests) {
  const std::string path = ::testing::TempDir() + "/requests.txt";
  const auto run = [&](const std::string& content) {
    std::ofstream(path) << content;
    const char* words[] = {"arborist",   "batch",      "--address", "unix:/nonexistent/socket",
                           "--requests", path.c_str(), "--timeout", "2s"};
    return RunClient(8, words);
  };
  const char* without[] = {"arborist", "batch"};
  EXPECT_EQ(RunClient(2, without), 2);
  EXPECT_EQ(run(""), 2);
  EXPECT_EQ(run("text: 'a'\ntxt: 'b'\n"), 2);
  EXPECT_EQ(run("text: 'a' max_tokens: 3 speculation { mode: SPECULATION_MODE_OFF }\n"), 1);
}

TEST(ClientTest, AFailedRequestOfABatchHasItsLineToo) {
  const std::string path = ::testing::TempDir() + "/two_requests.txt";
  std::ofstream(path) << "text: 'a'\ntext: 'b'\n";
  const char* words[] = {"arborist",   "batch",      "--address", "unix:/nonexistent/socket",
                         "--requests", path.c_str(), "--timeout", "2s"};
  ::testing::internal::CaptureStdout();
  EXPECT_EQ(RunClient(8, words), 1);
  const std::string out = ::testing::internal::GetCapturedStdout();
  const std::vector<std::string> lines = absl::StrSplit(out, '\n', absl::SkipEmpty());
  ASSERT_EQ(lines.size(), 2u) << out;
  for (const std::string& line : lines) {
    EXPECT_THAT(line, ::testing::StartsWith("{\"error\": {\"code\": \"UNAVAILABLE\", "));
    EXPECT_THAT(line, HasSubstr("\"message\": \""));
  }
}

class ServedHealthTest : public ::testing::Test {
 protected:
  ServedHealthTest() {
    auto started = RpcServer::Start({.listen = {"127.0.0.1:0"}}, {});
    EXPECT_TRUE(started.ok()) << started.status();
    server_ = *std::move(started);
  }
  // Of a command at the server, whose standard output becomes `out`.
  int Run(std::vector<const char*> words, std::string* out = nullptr) {
    words.insert(words.begin(), "arborist");
    words.insert(words.end(), {"--address", server_->addresses()[0].c_str()});
    ::testing::internal::CaptureStdout();
    const int status = RunClient(static_cast<int>(words.size()), words.data());
    const std::string text = ::testing::internal::GetCapturedStdout();
    if (out != nullptr) {
      *out = text;
    }
    return status;
  }
  std::unique_ptr<RpcServer> server_;
};

TEST_F(ServedHealthTest, WatchWithoutATimeoutLooksOnUntilTheServerIsGoneAndThatIsStatusOne) {
  const absl::Time begin = absl::Now();
  std::thread ends([this] {
    absl::SleepFor(absl::Seconds(6));  // longer than one question's 5 s
    server_->Drain();
  });
  std::string out;
  EXPECT_EQ(Run({"health", "--watch"}, &out), 1);
  EXPECT_GE(absl::Now() - begin, absl::Seconds(6));
  EXPECT_THAT(out, ::testing::StartsWith("SERVING\n"));
  ends.join();
}

TEST_F(ServedHealthTest, WatchThatItsTimeoutEndsSaysWhatWasLast) {
  EXPECT_EQ(Run({"health", "--watch", "--timeout", "500ms"}), 0);
  server_->SetServing("", false);
  EXPECT_EQ(Run({"health", "--watch", "--timeout", "500ms"}), 1);
}

TEST_F(ServedHealthTest, APauseIsNoPartOfThePingsDeadline) {
  EXPECT_EQ(Run({"ping", "--count", "1", "--pause", "1200ms", "--timeout", "1s"}), 0);
}

TEST(ClientTest, APingOfNobodyIsAnError) {
  const char* words[] = {"arborist", "ping", "--address", "unix:/nonexistent/socket",
                         "--count",  "3",    "--timeout", "2s"};
  EXPECT_EQ(RunClient(8, words), 1);
}

TEST(JsonWriterTest, TextIsQuotedAndNumbersStayExact) {
  JsonWriter writer;
  writer.Text("a\"b", "line\n\x01\\\xC3\xA9");
  writer.Unsigned("seed", UINT64_MAX);
  writer.Integers("ids", std::vector<int>{1, 2});
  writer.Number("x", 0.25);
  EXPECT_EQ(writer.Finish(),
            "{\"a\\\"b\": \"line\\n\\u0001\\\\\xC3\xA9\", \"seed\": 18446744073709551615, \"ids\": [1, 2], "
            "\"x\": 0.25}");
}

TEST(RunClientTest, OutputThatCannotBeWrittenIsAnError) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto help_into_a_full_disk = [] {
    std::exit(std::freopen("/dev/full", "w", stdout) == nullptr ? 77 : RunClient(3, kHelp));
  };
  EXPECT_EXIT(help_into_a_full_disk(), ::testing::ExitedWithCode(1), "standard output cannot be written");
}

}  // namespace
}  // namespace arborist::coordinator
