// What every process says of itself, and histograms that nobody waits for.
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/numbers.h"
#include "common/metrics/exposer.h"
#include "common/metrics/process_collector.h"
#include "common/metrics/process_facts.h"
#include "common/metrics/registry.h"
#include "common/metrics/testing/http_get.h"
#include "common/metrics/testing/scrape.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace arborist {
namespace {

using ::testing::HasSubstr;

// The value of a metric without labels.
double ValueOf(const std::string& text, const std::string& name) {
  const size_t begin = text.find("\n" + name + " ");
  EXPECT_NE(begin, std::string::npos) << name;
  double value = -1;
  const size_t from = begin + name.size() + 2;
  EXPECT_TRUE(absl::SimpleAtod(text.substr(from, text.find('\n', from) - from), &value)) << name;
  return value;
}

TEST(ProcessMetricsTest, AProcessSaysWhatItUses) {
  const MetricRegistry registry;
  auto exposer = MetricExposer::Start("127.0.0.1:0", registry);
  ASSERT_TRUE(exposer.ok()) << exposer.status();
  const std::string text = HttpGet((*exposer)->port(), "/metrics");
  EXPECT_GT(ValueOf(text, "process_resident_memory_bytes"), 1 << 20);
  EXPECT_GE(ValueOf(text, "process_virtual_memory_bytes"), ValueOf(text, "process_resident_memory_bytes"));
  EXPECT_GE(ValueOf(text, "process_open_fds"), 3);
  EXPECT_GE(ValueOf(text, "process_max_fds"), ValueOf(text, "process_open_fds"));
  EXPECT_GE(ValueOf(text, "process_threads"), 8);  // the exposer's
  const auto now = std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  EXPECT_LT(ValueOf(text, "process_start_time_seconds"), now + 2);
  EXPECT_GT(ValueOf(text, "process_start_time_seconds"), now - 3600);
  EXPECT_GE(ValueOf(text, "process_cpu_seconds_total"), 0);
  EXPECT_THAT(text, HasSubstr("# HELP process_open_fds Open file descriptors.\n"
                              "# TYPE process_open_fds gauge\n"));
  EXPECT_THAT(text, HasSubstr("# TYPE process_cpu_seconds_total counter\n"));
}

TEST(ProcessMetricsTest, CpuTimeGrowsWithWork) {
  const auto cpu_seconds = [] {
    for (const prometheus::MetricFamily& family : ProcessCollector().Collect()) {
      if (family.name == "process_cpu_seconds_total") {
        return family.metric.front().counter.value;
      }
    }
    return -1.0;
  };
  const double before = cpu_seconds();
  const auto begin = std::chrono::steady_clock::now();
  double after = before;
  while (after < before + 0.05 && std::chrono::steady_clock::now() - begin < std::chrono::seconds(30)) {
    volatile double work = 1;
    for (int i = 0; i < 10000000; ++i) {
      work = work * 1.0000001;
    }
    after = cpu_seconds();
  }
  EXPECT_GE(after, before + 0.05);
}

TEST(ProcessMetricsTest, FactsStandInLabels) {
  MetricRegistry registry;
  AddBuildInfo(registry);
  AddModelInfo(registry, "tiny", "abc");
  AddConfigInfo(registry, {{"device", "cpu"}});
  const std::string text = Scrape(registry);
  EXPECT_THAT(text, HasSubstr("arborist_build_info{commit=\""));
  EXPECT_THAT(text, HasSubstr("version=\"0."));
  EXPECT_THAT(text, HasSubstr("arborist_model_info{name=\"tiny\",revision=\"abc\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("arborist_config_info{device=\"cpu\"} 1\n"));
}

TEST(ProcessMetricsTest, PhasesOfTheStartAreZeroUntilTheyAreOver) {
  MetricRegistry registry;
  StartupPhases phases(registry, {"weights", "recording"});
  EXPECT_THAT(Scrape(registry), HasSubstr("arborist_startup_duration_seconds{phase=\"weights\"} 0\n"));
  std::this_thread::sleep_for(std::chrono::milliseconds(2));
  phases.End("weights");
  phases.Ready();
  const std::string text = Scrape(registry);
  EXPECT_GE(ValueOf(text, "arborist_startup_duration_seconds{phase=\"weights\"}"), 0.002);
  EXPECT_GE(ValueOf(text, "arborist_startup_duration_seconds{phase=\"total\"}"), 0.002);
  EXPECT_EQ(ValueOf(text, "arborist_startup_duration_seconds{phase=\"recording\"}"), 0);
}

TEST(HistogramTallyTest, EveryObservationIsInTheNextScrapeAndStays) {
  MetricRegistry registry;
  HistogramTally& tally = registry.AddTally("step_seconds", "Time of a step.", {0.1, 1});
  EXPECT_THAT(Scrape(registry), HasSubstr("arborist_step_seconds_count 0\n"));
  tally.Observe(0.1);
  tally.Observe(0.5, 3);
  tally.Observe(7);
  tally.Observe(9, 0);
  for (int scrape = 0; scrape < 2; ++scrape) {
    const std::string text = Scrape(registry);
    EXPECT_THAT(text, HasSubstr("arborist_step_seconds_bucket{le=\"0.1\"} 1\n"));
    EXPECT_THAT(text, HasSubstr("arborist_step_seconds_bucket{le=\"1\"} 4\n"));
    EXPECT_THAT(text, HasSubstr("arborist_step_seconds_bucket{le=\"+Inf\"} 5\n"));
    EXPECT_THAT(text, HasSubstr("arborist_step_seconds_sum 8.6"));
  }
  EXPECT_EQ(&registry.AddTally("step_seconds", "Time of a step.", {0.1, 1}), &tally);
}

TEST(HistogramTallyTest, NothingIsLostBetweenThreadsAndScrapes) {
  MetricRegistry registry;
  HistogramTally& tally = registry.AddTally("step_rows", "Rows of a step.", {1, 2});
  constexpr int kEach = 20000;
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i) {
    threads.emplace_back([&tally] {
      for (int k = 0; k < kEach; ++k) {
        tally.Observe(2);
      }
    });
  }
  for (int scrape = 0; scrape < 5; ++scrape) {
    Scrape(registry);
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  const std::string text = Scrape(registry);
  EXPECT_EQ(ValueOf(text, "arborist_step_rows_count"), 3 * kEach);
  EXPECT_EQ(ValueOf(text, "arborist_step_rows_sum"), 6 * kEach);
}

TEST(MetricRegistryTest, WhatIsKnownElsewhereIsAskedForAtEveryScrape) {
  MetricRegistry registry;
  prometheus::Gauge& gauge = registry.AddGauge("pages", "Pages.");
  int asked = 0;
  registry.BeforeScrape([&] { gauge.Set(++asked); });
  EXPECT_THAT(Scrape(registry), HasSubstr("arborist_pages 1\n"));
  EXPECT_THAT(Scrape(registry), HasSubstr("arborist_pages 2\n"));
}

}  // namespace
}  // namespace arborist
