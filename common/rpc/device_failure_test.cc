// A program of its own: it sends itself the signal that ends a service.
#include "common/rpc/device_failure.h"

#include <csignal>
#include <memory>

#include "arborist/v1/verifier.grpc.pb.h"
#include "common/rpc/protocol.h"
#include "gmock/gmock.h"
#include "grpc/health/v1/health.grpc.pb.h"
#include "gtest/gtest.h"

namespace arborist {
namespace {

using grpc::health::v1::HealthCheckResponse;

TEST(DeviceFailureTest, TheFirstReportIsTheReasonEndsServingForGoodAndDrainsTheProcess) {
  TerminationSignal signal;  // before any thread
  v1::VerifierService::Service service;
  grpc::Service* services[] = {&service};
  const auto server = RpcServer::Start({.listen = {"127.0.0.1:0"}}, services);
  ASSERT_TRUE(server.ok()) << server.status();
  ServingSwitch health(kVerifierServiceName);
  health.Attach(server->get());
  health.Set(true);
  const auto stub = grpc::health::v1::Health::NewStub(CreateRpcChannel((*server)->addresses()[0], {}));
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(20));
  grpc::health::v1::HealthCheckRequest request;
  request.set_service(kVerifierServiceName);
  const auto watch = stub->Watch(&context, request);
  HealthCheckResponse response;
  ASSERT_TRUE(watch->Read(&response));
  EXPECT_EQ(response.status(), HealthCheckResponse::SERVING);

  DeviceFailure failure("verifier", health);
  EXPECT_TRUE(failure.status().ok());
  EXPECT_EQ(failure.Cause(SIGTERM), "signal 15");
  ::testing::internal::CaptureStderr();
  failure.Report(absl::InternalError("verify step of 1 rows: an illegal memory access"));
  failure.Report(absl::InternalError("what followed from it"));
  EXPECT_EQ(::testing::internal::GetCapturedStderr(),
            "verifier: the device failed: verify step of 1 rows: an illegal memory access\n");
  ASSERT_TRUE(watch->Read(&response));
  EXPECT_EQ(response.status(), HealthCheckResponse::NOT_SERVING);
  health.Set(true);  // a step that ended late
  EXPECT_EQ(signal.Wait(), SIGTERM);
  EXPECT_EQ(failure.Cause(SIGTERM), "its device failed");
  EXPECT_EQ(failure.status().message(), "ended because its device failed");

  grpc::ClientContext again;
  again.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(20));
  ASSERT_TRUE(stub->Check(&again, request, &response).ok());
  EXPECT_EQ(response.status(), HealthCheckResponse::NOT_SERVING);
  const auto begin = std::chrono::steady_clock::now();
  failure.Drain(**server);  // the watch is still open, and 30 s would be its due
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(10));
}

}  // namespace
}  // namespace arborist
