#include "verifier/step_monitor.h"

#include <string>

#include "common/metrics/testing/scrape.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "verifier/testing/fake_verifier.h"

namespace arborist::verifier {
namespace {

using ::testing::HasSubstr;

TEST(StepMonitorTest, EverythingStandsAtZeroBeforeTheFirstStep) {
  MetricRegistry registry;
  StepMonitor monitor(registry);
  const std::string text = Scrape(registry);
  for (const char* line :
       {"arborist_verify_duration_seconds_count 0\n", "arborist_step_rows_count 0\n",
        "arborist_step_sequences_count 0\n", "arborist_computed_rows_total{kind=\"tree\"} 0\n",
        "arborist_computed_rows_total{kind=\"prompt\"} 0\n", "arborist_step_failures_total 0\n",
        "arborist_step_last_success_timestamp_seconds 0\n", "arborist_kv_cache_used_ratio 0\n",
        "arborist_sequences{state=\"queued\"} 0\n", "arborist_sequences{state=\"running\"} 0\n"}) {
    EXPECT_THAT(text, HasSubstr(line));
  }
}

TEST(StepMonitorTest, AStepIsCountedByItsRowsAndAFailedOneOnlyAsFailed) {
  MetricRegistry registry;
  StepMonitor monitor(registry);
  monitor.Report({.seconds = 0.003, .sequences = 3, .tree_rows = 34, .prompt_rows = 30, .ok = true});
  monitor.Report({.seconds = 9, .sequences = 1, .tree_rows = 1, .ok = false});
  const std::string text = Scrape(registry);
  EXPECT_THAT(text, HasSubstr("arborist_verify_duration_seconds_bucket{le=\"0.002\"} 0\n"));
  EXPECT_THAT(text, HasSubstr("arborist_verify_duration_seconds_bucket{le=\"0.005\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("arborist_verify_duration_seconds_count 1\n"));
  EXPECT_THAT(text, HasSubstr("arborist_step_rows_bucket{le=\"32\"} 0\n"));
  EXPECT_THAT(text, HasSubstr("arborist_step_rows_bucket{le=\"64\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("arborist_step_sequences_sum 3\n"));
  EXPECT_THAT(text, HasSubstr("arborist_computed_rows_total{kind=\"tree\"} 34\n"));
  EXPECT_THAT(text, HasSubstr("arborist_computed_rows_total{kind=\"prompt\"} 30\n"));
  EXPECT_THAT(text, HasSubstr("arborist_step_failures_total 1\n"));
}

TEST(StepMonitorTest, CacheAndQueueAreThoseOfTheScrape) {
  MetricRegistry registry;
  StepMonitor monitor(registry);
  testing::FakeVerifier verifier;  // 7 of 9 pages free
  verifier.PretendOthers({.queued = 2, .running = 3});
  monitor.Watch(verifier, /*page_bytes=*/1000);
  const std::string text = Scrape(registry);
  EXPECT_THAT(text, HasSubstr("arborist_kv_cache_blocks{state=\"free\"} 7\n"));
  EXPECT_THAT(text, HasSubstr("arborist_kv_cache_blocks{state=\"used\"} 2\n"));
  EXPECT_THAT(text, HasSubstr("arborist_kv_cache_used_ratio 0.222"));
  EXPECT_THAT(text, HasSubstr("arborist_kv_cache_bytes 9000\n"));
  EXPECT_THAT(text, HasSubstr("arborist_sequences{state=\"queued\"} 2\n"));
  EXPECT_THAT(text, HasSubstr("arborist_sequences{state=\"running\"} 3\n"));
}

}  // namespace
}  // namespace arborist::verifier
