#include <unistd.h>

#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "common/metrics/exposer.h"
#include "common/metrics/registry.h"
#include "common/metrics/testing/http_get.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace arborist {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(MetricsTest, AMetricIsServedAtZeroBeforeAnythingHappened) {
  MetricRegistry registry;
  registry.AddCounter("things_total", "Things that happened.", {{"kind", "good"}});
  registry.AddCounter("things_total", "Things that happened.", {{"kind", "bad"}});
  auto exposer = MetricExposer::Start("127.0.0.1:0", registry);
  ASSERT_TRUE(exposer.ok()) << exposer.status();
  const std::string answer = HttpGet((*exposer)->port(), "/metrics");
  EXPECT_THAT(answer, HasSubstr("200 OK"));
  EXPECT_THAT(answer, HasSubstr("# HELP arborist_things_total Things that happened.\n"
                                "# TYPE arborist_things_total counter\n"));
  EXPECT_THAT(answer, HasSubstr("arborist_things_total{kind=\"good\"} 0\n"));
  EXPECT_THAT(answer, HasSubstr("arborist_things_total{kind=\"bad\"} 0\n"));
  EXPECT_THAT(HttpGet((*exposer)->port(), "/elsewhere"), Not(HasSubstr("arborist_")));
}

TEST(MetricsTest, ValuesAreThoseOfTheMoment) {
  MetricRegistry registry;
  prometheus::Counter& counter = registry.AddCounter("steps_total", "Steps.");
  prometheus::Gauge& gauge = registry.AddGauge("used_ratio", "Part in use.");
  prometheus::Histogram& histogram = registry.AddHistogram("step_seconds", "Time of a step.", {0.1, 1});
  auto exposer = MetricExposer::Start("127.0.0.1:0", registry);
  ASSERT_TRUE(exposer.ok()) << exposer.status();
  counter.Increment(3);
  gauge.Set(0.25);
  histogram.Observe(0.5);
  const std::string answer = HttpGet((*exposer)->port(), "/metrics");
  EXPECT_THAT(answer, HasSubstr("arborist_steps_total 3\n"));
  EXPECT_THAT(answer, HasSubstr("arborist_used_ratio 0.25\n"));
  EXPECT_THAT(answer, HasSubstr("arborist_step_seconds_bucket{le=\"0.1\"} 0\n"));
  EXPECT_THAT(answer, HasSubstr("arborist_step_seconds_bucket{le=\"1\"} 1\n"));
}

TEST(MetricsTest, AddingTheSameMetricAgainGivesTheSameOne) {
  MetricRegistry registry;
  EXPECT_EQ(&registry.AddCounter("steps_total", "Steps."), &registry.AddCounter("steps_total", "Steps."));
}

TEST(MetricsTest, ATakenPortAndNonsenseAreRefusedByName) {
  MetricRegistry registry;
  auto first = MetricExposer::Start("127.0.0.1:0", registry);
  ASSERT_TRUE(first.ok()) << first.status();
  const std::string taken = "127.0.0.1:" + std::to_string((*first)->port());
  const auto second = MetricExposer::Start(taken, registry);
  EXPECT_EQ(second.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(second.status().message()), HasSubstr("metrics.listen=" + taken + ", expected"));
  for (const std::string address :
       {"127.0.0.1:notaport", "127.0.0.1:0,127.0.0.1:0", "127.0.0.1:0s", "9101", "127.0.0.1:", ":0", ""}) {
    const auto refused = MetricExposer::Start(address, registry);
    EXPECT_EQ(refused.status().code(), absl::StatusCode::kInvalidArgument) << address;
    EXPECT_THAT(std::string(refused.status().message()),
                HasSubstr("metrics.listen=" + address + ", expected ip:port"));
  }
}

// Connections that send a part of a request and no more.
class HalfOpen {
 public:
  HalfOpen(int port, int count) {
    for (int i = 0; i < count; ++i) {
      sockets_.push_back(ConnectTo(port));
      EXPECT_EQ(write(sockets_.back(), "GET /met", 8), 8);
    }
  }
  ~HalfOpen() {
    for (const int socket : sockets_) {
      close(socket);
    }
  }

 private:
  std::vector<int> sockets_;
};

// Seconds until a scrape is answered while `count` connections are half open.
double SecondsOfAScrapeBeside(int count) {
  MetricRegistry registry;
  registry.AddCounter("steps_total", "Steps.");
  auto exposer = MetricExposer::Start("127.0.0.1:0", registry);
  EXPECT_TRUE(exposer.ok()) << exposer.status();
  const HalfOpen others((*exposer)->port(), count);
  std::this_thread::sleep_for(std::chrono::milliseconds(200));  // until they have their threads
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_THAT(HttpGet((*exposer)->port(), "/metrics"), HasSubstr("arborist_steps_total 0\n"));
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

// With two threads and the default of 30 s, two of them held it up for 30 s.
TEST(MetricsTest, AFewHalfOpenConnectionsDoNotHoldAScrapeUp) { EXPECT_LT(SecondsOfAScrapeBeside(4), 1.5); }

TEST(MetricsDeathTest, NamesThatBreakTheRulesAreOurFault) {
  MetricRegistry registry;
  EXPECT_DEATH(registry.AddCounter("steps", "Steps."), "_total");
  EXPECT_DEATH(registry.AddGauge("steps_total", "Steps."), "_total");
  EXPECT_DEATH(registry.AddGauge("Steps", "Steps."), "snake case");
  EXPECT_DEATH(registry.AddGauge("arborist_steps", "Steps."), "prefix");
  EXPECT_DEATH(registry.AddGauge("steps", ""), "what it is");
  registry.AddGauge("depth", "Depth.");
  EXPECT_DEATH(registry.AddGauge("depth", "Depth.", {{"kind", "x"}}), "one thing");
}

}  // namespace
}  // namespace arborist
