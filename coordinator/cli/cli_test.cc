#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "common/rpc/server.h"
#include "coordinator/cli/client.h"
#include "coordinator/cli/json_writer.h"

namespace arborist::coordinator {
namespace {

using ::testing::HasSubstr;

constexpr const char* kHelp[] = {"arborist", "generate", "--help"};

TEST(ClientTest, AWrongCommandLineIsStatusTwoAndALostServerStatusOne) {
  const char* unknown[] = {"arborist", "dance"};
  EXPECT_EQ(RunClient(2, unknown), 2);
  const char* none[] = {"arborist"};
  EXPECT_EQ(RunClient(1, none), 2);
  const char* no_server[] = {"arborist", "model", "--address", "unix:/nonexistent/socket", "--timeout", "2s"};
  EXPECT_EQ(RunClient(6, no_server), 1);
}

TEST(ClientTest, AServerThatIsSlowToAnswerAConnectionIsWaitedFor) {
  const int listener = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{
      .sin_family = AF_INET, .sin_port = 0, .sin_addr = {htonl(INADDR_LOOPBACK)}, .sin_zero = {}};
  socklen_t size = sizeof(address);
  ASSERT_EQ(bind(listener, reinterpret_cast<sockaddr*>(&address), size), 0);
  ASSERT_EQ(listen(listener, 8), 0);  // and never says a word
  ASSERT_EQ(getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size), 0);
  const std::string place = absl::StrCat("127.0.0.1:", ntohs(address.sin_port));
  const char* words[] = {"arborist", "model", "--address", place.c_str(), "--timeout", "700ms"};
  ::testing::internal::CaptureStderr();
  const absl::Time begin = absl::Now();
  EXPECT_EQ(RunClient(6, words), 1);
  EXPECT_GE(absl::Now() - begin, absl::Milliseconds(690));
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("DEADLINE_EXCEEDED"));
  close(listener);
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
  writer.Numbers("more", {-0.1f, -INFINITY});
  writer.List("list", {"{}", "[]"});
  EXPECT_EQ(writer.Finish(),
            "{\"a\\\"b\": \"line\\n\\u0001\\\\\xC3\xA9\", \"seed\": 18446744073709551615, \"ids\": [1, 2], "
            "\"x\": 0.25, \"more\": [-0.100000001, null], \"list\": [{}, []]}");
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
