// What the world hears of shadow verification: metrics over HTTP, log lines, health.
#include "verifier/shadow_monitor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <vector>

#include "common/metrics/testing/scrape.h"
#include "common/rpc/channel.h"
#include "common/rpc/protocol.h"
#include "common/rpc/server.h"
#include "common/rpc/serving_switch.h"
#include "grpc/health/v1/health.grpc.pb.h"
#include "kernels/tree_attention_mla/tree_attention_mla.h"
#include "verifier/testing/drive.h"
#include "verifier/testing/test_verifier.h"

namespace arborist::verifier {
namespace {

using grpc::health::v1::HealthCheckResponse;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::SizeIs;

class ShadowMonitorTest : public ::testing::Test {
 protected:
  ShadowMonitorTest()
      : monitor_(
            metrics_, [this](const std::string& line) { lines_.push_back(line); }, [this] { ++faults_; }) {}
  std::string Metrics() { return Scrape(metrics_); }

  MetricRegistry metrics_;
  std::vector<std::string> lines_;
  int faults_ = 0;
  ShadowMonitor monitor_;
};

TEST_F(ShadowMonitorTest, EveryMetricIsThereAtZeroBeforeTheFirstStep) {
  const std::string metrics = Metrics();
  EXPECT_THAT(metrics, HasSubstr("\narborist_shadow_steps_total 0\n"));
  EXPECT_THAT(metrics, HasSubstr("\narborist_shadow_passed_over_steps_total 0\n"));
  for (const ShadowKernel kernel : kShadowKernels) {
    for (const char* name :
         {"rows_total", "faults_total", "mismatches_total", "non_finite_total", "max_abs_difference",
          "mean_abs_difference", "relative_difference_ratio", "worst_relative_difference_ratio"}) {
      EXPECT_THAT(metrics, HasSubstr("\narborist_shadow_" + std::string(name) + "{kernel=\"" +
                                     std::string(Name(kernel)) + "\"} 0\n"));
    }
  }
}

TEST_F(ShadowMonitorTest, WhatIsReportedIsServedAndLogged) {
  ShadowReport report{.kernel = ShadowKernel::kTreeAttentionMla,
                      .step = 7,
                      .layer = 3,
                      .rows = 4,
                      .difference = {.values = 100, .max_abs = 0.5, .mean_abs = 0.25, .relative = 0.125},
                      .limit = 0.2};
  monitor_.Report(report);
  report.difference = {.values = 100, .max_abs = 0.125, .mean_abs = 0.0625, .relative = 0.03125};
  monitor_.Report(report);
  monitor_.PassedOver();
  const std::string metrics = Metrics();
  EXPECT_THAT(metrics, HasSubstr("\narborist_shadow_steps_total 1\n")) << "two reports of one step";
  EXPECT_THAT(metrics, HasSubstr("\narborist_shadow_passed_over_steps_total 1\n"));
  const std::string kernel = "{kernel=\"tree_attention_mla\"} ";
  EXPECT_THAT(metrics, HasSubstr("arborist_shadow_rows_total" + kernel + "8\n"));
  EXPECT_THAT(metrics, HasSubstr("arborist_shadow_faults_total" + kernel + "0\n"));
  EXPECT_THAT(metrics, HasSubstr("arborist_shadow_max_abs_difference" + kernel + "0.125\n"));
  EXPECT_THAT(metrics, HasSubstr("arborist_shadow_mean_abs_difference" + kernel + "0.0625\n"));
  EXPECT_THAT(metrics, HasSubstr("arborist_shadow_relative_difference_ratio" + kernel + "0.03125\n"));
  EXPECT_THAT(metrics, HasSubstr("arborist_shadow_worst_relative_difference_ratio" + kernel + "0.125\n"));
  EXPECT_THAT(lines_,
              ElementsAre("level=INFO event=shadow kernel=tree_attention_mla step=7 rows=4 max_abs=0.5 "
                          "mean_abs=0.25 relative=0.125 limit=0.2 mismatches=0 non_finite=0 layer=3"));
  EXPECT_EQ(faults_, 0);
}

TEST_F(ShadowMonitorTest, AFaultIsAnErrorLineAndManyAreOneASecond) {
  const ShadowReport report{.kernel = ShadowKernel::kMoeRoute,
                            .step = 1,
                            .layer = 2,
                            .rows = 4,
                            .difference = {.values = 32, .mismatches = 2, .non_finite = 3},
                            .limit = 0.2,
                            .fault = true};
  for (int i = 0; i < 5; ++i) {
    monitor_.Report(report);
  }
  ASSERT_THAT(lines_, SizeIs(1));
  EXPECT_THAT(lines_[0], HasSubstr("level=ERROR event=shadow kernel=moe_route"));
  EXPECT_THAT(lines_[0], HasSubstr("mismatches=2 non_finite=3"));
  EXPECT_EQ(faults_, 5);
  usleep(1100000);
  monitor_.Report(report);
  ASSERT_THAT(lines_, SizeIs(2));
  EXPECT_THAT(lines_[1], HasSubstr(" left_out=4"));
  const std::string metrics = Metrics();
  EXPECT_THAT(metrics, HasSubstr("arborist_shadow_faults_total{kernel=\"moe_route\"} 6\n"));
  EXPECT_THAT(metrics, HasSubstr("arborist_shadow_mismatches_total{kernel=\"moe_route\"} 12\n"));
  EXPECT_THAT(metrics, HasSubstr("arborist_shadow_non_finite_total{kernel=\"moe_route\"} 18\n"));
}

// As run.cc puts it together: a verifier, its health and its metrics, with tree rows left out of the slot
// map.
class ShadowedServiceTest : public ::testing::TestWithParam<bool> {
 protected:
  ShadowedServiceTest() {
    address_ = "unix:" +
               (std::filesystem::temp_directory_path() / ("shadow_monitor_test." + std::to_string(getpid())))
                   .string();
    auto server = RpcServer::Start({.listen = {address_}, .drain = std::chrono::milliseconds(200)}, {});
    EXPECT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    health_.Attach(server_.get());
    health_.Set(true);
  }
  HealthCheckResponse::ServingStatus Health() const {
    const auto stub = grpc::health::v1::Health::NewStub(CreateRpcChannel(address_, {}));
    grpc::ClientContext context;
    grpc::health::v1::HealthCheckRequest request;
    request.set_service(kVerifierServiceName);
    HealthCheckResponse response;
    EXPECT_TRUE(stub->Check(&context, request, &response).ok());
    return response.status();
  }
  static absl::Status LeaveTreeRowsOut(StepBatch& batch, KvPlanes&) {
    for (const int row : batch.logits_row) {
      int32_t* tail = batch.tail_slot.data() + row * kernels::kMaxTailKeys;
      const int depth = batch.position[row] - batch.position[batch.first_row[batch.sequence[row]]];
      tail[batch.tail_count[row] - 1 - depth] = tail[batch.tail_count[row] - 1];
      batch.tail_count[row] -= depth;
    }
    return absl::OkStatus();
  }

  std::string address_;
  ServingSwitch health_{kVerifierServiceName};
  std::unique_ptr<RpcServer> server_;
};

TEST_P(ShadowedServiceTest, AFaultTurnsHealthOnlyWhereThatIsConfiguredAndTheServiceGoesOn) {
  const bool configured = GetParam();
  MetricRegistry metrics;
  std::vector<std::string> errors;
  ShadowMonitor monitor(
      metrics,
      [&errors](const std::string& line) {
        if (line.find("level=ERROR") == 0) {
          errors.push_back(line);
        }
      },
      configured ? [this] { health_.Fail(); } : std::function<void()>());
  TestVerifierOptions options;
  options.make_model = [](const ModelOptions& model, Device& device) {
    return LoadGolden("v3_groups", model, device);
  };
  options.before = LeaveTreeRowsOut;
  options.verifier.shadow = {.fraction = 1,
                             .kernels = {},
                             .relative_limit = DefaultShadowLimit(DType::kF32),
                             .wait = true,
                             .on_report = [&](const ShadowReport& report) { monitor.Report(report); },
                             .on_passed_over = [&] { monitor.PassedOver(); }};
  const OpenArgs args = MakeOpen("request", RandomTokens(80, 64, 17), 24, 16);
  {
    TestVerifier verifier(options);
    // A root alone has no tree rows to leave out.
    const Decoded plain = DecodePlain(*verifier, args);
    EXPECT_EQ(plain.tokens.size(), 24u) << plain.closed;
    EXPECT_THAT(errors, ElementsAre());
    EXPECT_EQ(Health(), HealthCheckResponse::SERVING);
    std::vector<TokenId> text = args.prompt;
    text.insert(text.end(), plain.tokens.begin(), plain.tokens.end());
    OpenArgs again = args;
    again.key.request_id = "again";
    const Decoded trees = DecodeTrees(*verifier, again, ReplayDrafter(text, 64, 16, 23));
    EXPECT_TRUE(trees.closed.ok()) << "the process stays up: " << trees.closed;
  }
  ASSERT_FALSE(errors.empty());
  EXPECT_THAT(errors[0], HasSubstr("kernel=tree_attention_mla"));
  EXPECT_EQ(Health(), configured ? HealthCheckResponse::NOT_SERVING : HealthCheckResponse::SERVING);
  health_.Set(true);  // as the watch over stalled steps says
  EXPECT_EQ(Health(), configured ? HealthCheckResponse::NOT_SERVING : HealthCheckResponse::SERVING);
  const std::string page = Scrape(metrics);
  EXPECT_THAT(page, Not(HasSubstr("arborist_shadow_faults_total{kernel=\"tree_attention_mla\"} 0\n")));
  EXPECT_THAT(page, HasSubstr("arborist_shadow_faults_total{kernel=\"tree_accept\"} 0\n"));
}

INSTANTIATE_TEST_SUITE_P(NotServingOnFault, ShadowedServiceTest, ::testing::Bool());

}  // namespace
}  // namespace arborist::verifier
