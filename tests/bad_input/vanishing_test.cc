// Clients that go away, or stay and do nothing, at every moment of a call. What they held comes back, and
// others get their bytes.
#include <signal.h>
#include <sys/wait.h>

#include <chrono>
#include <thread>

#include "common/rpc/status_bridge.h"
#include "grpcpp/create_channel.h"
#include "grpcpp/security/credentials.h"
#include "grpcpp/support/channel_arguments.h"
#include "tests/bad_input/child_process.h"
#include "tests/bad_input/processes.h"
#include "tests/bad_input/verify_stream.h"

namespace arborist::bad_input {
namespace {

using std::chrono::milliseconds;

v1::GenerateRequest LongRequest(v1::SpeculationMode mode) {
  v1::GenerateRequest request;
  request.set_text("import os\n");
  request.set_ignore_eos(true);
  request.set_max_tokens(1900);
  request.set_temperature(0);
  request.mutable_speculation()->set_mode(mode);
  return request;
}

constexpr v1::SpeculationMode kModes[] = {v1::SPECULATION_MODE_OFF, v1::SPECULATION_MODE_TREE,
                                          v1::SPECULATION_MODE_AUTO};

absl::Status EndOf(grpc::ClientReader<v1::GenerateResponse>& stream) {
  v1::GenerateResponse response;
  while (stream.Read(&response)) {
  }
  return FromGrpcStatus(stream.Finish());
}

TEST(VanishingClients, ACallThatIsCancelledAfterSomeTokens) {
  for (const v1::SpeculationMode mode : kModes) {
    for (const int chunks : {0, 1, 5}) {
      SCOPED_TRACE(v1::SpeculationMode_Name(mode) + " " + std::to_string(chunks));
      grpc::ClientContext context;
      auto stream = TheProcesses().coordinator().Generate(&context, LongRequest(mode));
      v1::GenerateResponse response;
      for (int i = 0; i < chunks; ++i) {
        EXPECT_TRUE(stream->Read(&response));
      }
      context.TryCancel();
      EXPECT_EQ(EndOf(*stream).code(), absl::StatusCode::kCancelled);
      ExpectStillServes();
    }
  }
}

TEST(VanishingClients, ADeadlineThatPasses) {
  for (const v1::SpeculationMode mode : kModes) {
    for (const milliseconds patience : {milliseconds(-1), milliseconds(1), milliseconds(60)}) {
      SCOPED_TRACE(v1::SpeculationMode_Name(mode) + " " + std::to_string(patience.count()));
      grpc::ClientContext context;
      context.set_deadline(std::chrono::system_clock::now() + patience);
      auto stream = TheProcesses().coordinator().Generate(&context, LongRequest(mode));
      EXPECT_EQ(EndOf(*stream).code(), absl::StatusCode::kDeadlineExceeded);
      ExpectStillServes();
    }
  }
}

TEST(VanishingClients, ATimeoutOfTheRequestsOwn) {
  v1::GenerateRequest request = LongRequest(v1::SPECULATION_MODE_TREE);
  request.mutable_timeout()->set_nanos(50'000'000);
  grpc::ClientContext context;
  auto stream = TheProcesses().coordinator().Generate(&context, request);
  const absl::Status status = EndOf(*stream);
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded) << status;
  EXPECT_EQ(OriginOf(status), "coordinator");
  ExpectStillServes();
}

TEST(VanishingClients, AReaderThatReadsNothingForAWhile) {
  v1::GenerateRequest blocked = LongRequest(v1::SPECULATION_MODE_TREE);
  blocked.set_n(4);
  blocked.set_max_tokens(1200);
  blocked.set_top_log_probs(20);  // more than a connection takes unread
  blocked.mutable_timeout()->set_seconds(6);
  grpc::ChannelArguments arguments;  // 64 KiB; channels of ours take more
  arguments.SetInt(GRPC_ARG_HTTP2_BDP_PROBE, 0);
  const auto channel = grpc::CreateCustomChannel(TheProcesses().Address("coordinator"),
                                                 grpc::InsecureChannelCredentials(), arguments);
  grpc::ClientContext context;
  auto stream = v1::CoordinatorService::NewStub(channel)->Generate(&context, blocked);
  EXPECT_TRUE(Eventually([] { return TheProcesses().AnswersInFlight() == 4; }));
  for (int i = 0; i < 3; ++i) {  // it holds pages, so only the bytes of others are looked at
    v1::GenerateRequest request = LongRequest(v1::SPECULATION_MODE_OFF);
    request.set_max_tokens(5);
    grpc::ClientContext other;
    EXPECT_TRUE(EndOf(*TheProcesses().coordinator().Generate(&other, request)).ok());
  }
  ExpectStillServes();  // though it has not read a byte: soon after its timeout
  EXPECT_FALSE(EndOf(*stream).ok());
}

TEST(VanishingClients, ManyCallsThatAreCancelledAtOnce) {
  std::vector<std::unique_ptr<grpc::ClientContext>> contexts;
  std::vector<std::unique_ptr<grpc::ClientReader<v1::GenerateResponse>>> streams;
  for (int i = 0; i < 40; ++i) {
    contexts.push_back(std::make_unique<grpc::ClientContext>());
    streams.push_back(
        TheProcesses().coordinator().Generate(contexts.back().get(), LongRequest(kModes[i % 3])));
  }
  for (auto& context : contexts) {
    context->TryCancel();
  }
  for (auto& stream : streams) {
    (void)EndOf(*stream);
  }
  ExpectStillServes();
}

// Its connection breaks without a word of HTTP/2.
TEST(VanishingClients, AProcessThatIsKilledOrStoppedInTheMiddle) {
  const std::string address = TheProcesses().Address("coordinator");
  for (const int how : {SIGKILL, SIGSTOP}) {
    for (const int delay : {0, 20, 100}) {
      SCOPED_TRACE(std::to_string(how) + " after " + std::to_string(delay) + " ms");
      const absl::StatusOr<pid_t> pid = StartProgram(
          {ProgramPath("arborist"), "generate", "--address", address, "--prompt", "import os\n",
           "--ignore-eos", "--max-tokens", "1900", "--speculation", "tree", "--request-timeout", "2s"},
          "/dev/null");
      ASSERT_TRUE(pid.ok()) << pid.status();
      std::this_thread::sleep_for(milliseconds(delay));
      kill(*pid, how);
      if (how == SIGSTOP) {  // its connection stays, and nobody reads
        ExpectStillServes();
        kill(*pid, SIGKILL);
      }
      waitpid(*pid, nullptr, 0);
      ExpectStillServes();
    }
  }
}

TEST(VanishingClients, AnOwnerOfAVerifyStreamAtEveryStep) {
  const std::vector<std::vector<std::string>> scripts = {
      {"open {}"},
      {"open { sequence { prompt: [LONG] } }"},
      {"open {}", "wait"},
      {"open {}", "wait", "tree {}"},
      {"open {}", "wait", "decode { max_tokens: 900 }"},
      {"open {}", "wait", "tree {}", "committed"},
      {"open {}", "half-close"},
      {"open {}", "wait", "half-close"},
      {"open {}", "wait", "decode { max_tokens: 900 }", "half-close"},
      {"open {}", "wait", "stop {}"},
  };
  for (const std::vector<std::string>& script : scripts) {
    SCOPED_TRACE(script.back());
    VerifyStream stream;
    for (const std::string& step : script) {
      stream.Do(step);
    }
    stream.Do("cancel");
    (void)stream.End();
    ExpectStillServes();
  }
}

TEST(VanishingClients, AnOwnerOfASpeculation) {
  for (const int messages : {0, 1, 10}) {
    v1::SpeculateRequest request;
    *request.mutable_sequence() = GoodSequence("vanishing");
    grpc::ClientContext context;
    auto stream = TheProcesses().drafter().Speculate(&context, request);
    v1::SpeculateResponse response;
    for (int i = 0; i < messages; ++i) {
      EXPECT_TRUE(stream->Read(&response));
    }
    context.TryCancel();
    while (stream->Read(&response)) {
    }
    (void)stream->Finish();
    ExpectStillServes();
  }
}

}  // namespace
}  // namespace arborist::bad_input
