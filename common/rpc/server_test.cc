#include "common/rpc/server.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <thread>

#include "arborist/v1/verifier.grpc.pb.h"
#include "common/rpc/ends_while_loading.h"
#include "common/rpc/protocol.h"
#include "common/rpc/serving_switch.h"
#include "gmock/gmock.h"
#include "grpc/health/v1/health.grpc.pb.h"
#include "grpcpp/completion_queue.h"
#include "grpcpp/generic/generic_stub.h"
#include "gtest/gtest.h"

namespace arborist {
namespace {

using grpc::health::v1::Health;
using grpc::health::v1::HealthCheckRequest;
using grpc::health::v1::HealthCheckResponse;
using ::testing::HasSubstr;

class SilentVerifier final : public v1::VerifierService::Service {};

class RpcServerTest : public ::testing::Test {
 protected:
  void Start(const std::string& address) {
    grpc::Service* services[] = {&service_};
    auto server = RpcServer::Start({.listen = {address}, .drain = std::chrono::milliseconds(200)}, services);
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = std::move(*server);
    channel_ = CreateRpcChannel(server_->addresses()[0], {});
    health_ = Health::NewStub(channel_);
  }
  static std::string Socket(const std::string& name) {
    return "unix:" + (std::filesystem::temp_directory_path() / (name + std::to_string(getpid()))).string();
  }
  HealthCheckResponse::ServingStatus Check(const std::string& name) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(20));
    HealthCheckRequest request;
    request.set_service(name);
    HealthCheckResponse response;
    const grpc::Status status = health_->Check(&context, request, &response);
    return status.ok() ? response.status() : HealthCheckResponse::SERVICE_UNKNOWN;
  }

  // Of the verifier's service.
  class Watcher {
   public:
    explicit Watcher(Health::Stub& health) {
      context_.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(20));
      HealthCheckRequest request;
      request.set_service(kVerifierServiceName);
      reader_ = health.Watch(&context_, request);
    }
    // UNKNOWN, which no service says, at the end.
    HealthCheckResponse::ServingStatus Read() {
      HealthCheckResponse response;
      return reader_->Read(&response) ? response.status() : HealthCheckResponse::UNKNOWN;
    }

   private:
    grpc::ClientContext context_;
    std::unique_ptr<grpc::ClientReader<HealthCheckResponse>> reader_;
  };

  SilentVerifier service_;
  std::unique_ptr<RpcServer> server_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<Health::Stub> health_;
};

TEST_F(RpcServerTest, HealthTellsTheProcessFromTheService) {
  Start("127.0.0.1:0");
  EXPECT_EQ(Check(""), HealthCheckResponse::SERVING);
  EXPECT_EQ(Check(kVerifierServiceName), HealthCheckResponse::SERVICE_UNKNOWN);
  server_->SetServing(kVerifierServiceName, false);
  EXPECT_EQ(Check(kVerifierServiceName), HealthCheckResponse::NOT_SERVING);
  server_->SetServing(kVerifierServiceName, true);
  EXPECT_EQ(Check(kVerifierServiceName), HealthCheckResponse::SERVING);
}

TEST_F(RpcServerTest, WatchHearsEveryChangeUntilTheDrain) {
  Start(Socket("rpc_watch"));
  server_->SetServing(kVerifierServiceName, false);
  Watcher watch(*health_);
  EXPECT_EQ(watch.Read(), HealthCheckResponse::NOT_SERVING);
  server_->SetServing(kVerifierServiceName, true);
  EXPECT_EQ(watch.Read(), HealthCheckResponse::SERVING);
  std::thread drain([this] { server_->Drain(); });
  EXPECT_EQ(watch.Read(), HealthCheckResponse::NOT_SERVING);
  EXPECT_EQ(watch.Read(), HealthCheckResponse::UNKNOWN);
  drain.join();
}

TEST_F(RpcServerTest, AServingSwitchSaysChangesOnlyAndNothingAfterItFailed) {
  Start(Socket("rpc_switch"));
  ServingSwitch health(kVerifierServiceName);
  health.Attach(server_.get());
  Watcher watch(*health_);
  EXPECT_EQ(watch.Read(), HealthCheckResponse::NOT_SERVING);
  // Each change is read before the next: the health service joins changes that a watcher has not read yet.
  int changes = 0;
  for (int i = 0; i < 50; ++i) {
    health.Set(true, [&] { ++changes; });
  }
  EXPECT_EQ(watch.Read(), HealthCheckResponse::SERVING);
  for (int i = 0; i < 50; ++i) {
    health.Fail();
    health.Set(true, [&] { ++changes; });
    health.Set(false, [&] { ++changes; });
  }
  EXPECT_EQ(changes, 1);
  EXPECT_EQ(watch.Read(), HealthCheckResponse::NOT_SERVING);
  server_->SetServing(kVerifierServiceName, true);  // the mark after what the switch said
  EXPECT_EQ(watch.Read(), HealthCheckResponse::SERVING);
}

// Reflection is spoken through its bytes: the library that serves it also registers its messages.
TEST_F(RpcServerTest, ReflectionListsTheServices) {
  Start(Socket("rpc_reflection"));
  grpc::GenericStub stub(channel_);
  grpc::CompletionQueue queue;
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(20));
  auto call =
      stub.PrepareCall(&context, "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", &queue);
  const auto wait = [&queue] {
    void* tag = nullptr;
    bool ok = false;
    return queue.Next(&tag, &ok) && ok;
  };
  call->StartCall(nullptr);
  ASSERT_TRUE(wait());
  const std::string list_services("\x3a\x01*", 3);  // field 7: list_services = "*"
  const grpc::Slice slice(list_services);
  call->Write(grpc::ByteBuffer(&slice, 1), nullptr);
  ASSERT_TRUE(wait());
  grpc::ByteBuffer answer;
  call->Read(&answer, nullptr);
  ASSERT_TRUE(wait());
  std::vector<grpc::Slice> slices;
  ASSERT_TRUE(answer.Dump(&slices).ok());
  std::string text;
  for (const grpc::Slice& part : slices) {
    text.append(reinterpret_cast<const char*>(part.begin()), part.size());
  }
  EXPECT_THAT(text, HasSubstr("arborist.v1.VerifierService"));
  EXPECT_THAT(text, HasSubstr("grpc.health.v1.Health"));
  context.TryCancel();
  grpc::Status status;
  call->Finish(&status, nullptr);
  wait();
}

TEST_F(RpcServerTest, AddressInUseAndMalformedAddressesAreErrors) {
  Start("127.0.0.1:0");
  grpc::Service* services[] = {&service_};
  SilentVerifier other;
  grpc::Service* others[] = {&other};
  const auto taken = RpcServer::Start({.listen = server_->addresses()}, others);
  EXPECT_EQ(taken.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(taken.status().message()), HasSubstr(server_->addresses()[0]));
  EXPECT_EQ(RpcServer::Start({.listen = {}}, services).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(RpcServer::Start({.listen = {"nonsense"}}, services).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST_F(RpcServerTest, ASocketThatALivingServerHasIsInUseAndThatServerGoesOn) {
  Start(Socket("rpc_taken"));
  SilentVerifier other;
  grpc::Service* others[] = {&other};
  const auto taken = RpcServer::Start({.listen = server_->addresses()}, others);
  EXPECT_EQ(taken.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(taken.status().message()), HasSubstr(server_->addresses()[0]));
  EXPECT_EQ(Check(""), HealthCheckResponse::SERVING);
}

TEST_F(RpcServerTest, ASocketThatADeadProcessLeftIsTaken) {
  const std::string address = Socket("rpc_stale");
  sockaddr_un name{};
  name.sun_family = AF_UNIX;
  address.copy(name.sun_path, sizeof(name.sun_path) - 1, 5);  // without unix:
  const int fd = socket(AF_UNIX, SOCK_STREAM, 0);
  ASSERT_EQ(bind(fd, reinterpret_cast<const sockaddr*>(&name), sizeof(name)), 0);
  close(fd);
  ASSERT_TRUE(std::filesystem::is_socket(name.sun_path));
  Start(address);
  EXPECT_EQ(Check(""), HealthCheckResponse::SERVING);
}

TEST_F(RpcServerTest, DrainLetsARunningWatchEndAndRefusesNewCalls) {
  Start(Socket("rpc_drain"));
  EXPECT_EQ(Check(""), HealthCheckResponse::SERVING);
  const auto begin = std::chrono::steady_clock::now();
  server_->Drain();
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(10));
  EXPECT_EQ(Check(""), HealthCheckResponse::SERVICE_UNKNOWN);  // unreachable
  server_->Drain();
  server_->SetServing(kVerifierServiceName, true);  // does nothing
}

// In a process of its own: here other threads that do not block the signal are running already.
TEST(TerminationSignalDeathTest, WaitReturnsTheSignal) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto process = [] {
    TerminationSignal signal;
    std::thread sender([] { kill(getpid(), SIGTERM); });
    const int received = signal.Wait();
    sender.join();
    std::_Exit(received == SIGTERM ? 0 : 1);
  };
  EXPECT_EXIT(process(), ::testing::ExitedWithCode(0), "");
}

TEST(TerminationSignalDeathTest, AProcessThatLoadsEndsAtOnceAndOneThatHasLoadedByItsOwnWait) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto while_loading = [] {
    TerminationSignal signal;
    const EndsWhileLoading ends(signal, [](int number) { return number == SIGTERM ? 7 : 1; });
    kill(getpid(), SIGTERM);
    std::this_thread::sleep_for(std::chrono::seconds(20));
    std::_Exit(2);
  };
  EXPECT_EXIT(while_loading(), ::testing::ExitedWithCode(7), "");
  const auto after = [] {
    TerminationSignal signal;
    {
      const EndsWhileLoading ends(signal, [](int) { return 1; });
    }
    kill(getpid(), SIGTERM);
    std::_Exit(signal.Wait() == SIGTERM ? 0 : 2);
  };
  EXPECT_EXIT(after(), ::testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace arborist
