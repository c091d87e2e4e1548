#include "coordinator/request_metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "common/metrics/testing/scrape.h"
#include "coordinator/testing/flow_fixture.h"

namespace arborist::coordinator {
namespace {

using ::testing::HasSubstr;

class RequestMetricsTest : public testing::RequestFlowTest {
 protected:
  RequestMetricsTest() { settings_.metrics = &metrics_; }
  ~RequestMetricsTest() override { EndFlow(); }
  void ExpectLines(const std::vector<std::string>& lines) {
    const std::string text = Scrape(registry_);
    for (const std::string& line : lines) {
      EXPECT_THAT(text, HasSubstr("\narborist_" + line + "\n"));
    }
  }

  MetricRegistry registry_;
  RequestMetrics metrics_{registry_};
};

TEST_F(RequestMetricsTest, EveryLabelStandsAtZeroBeforeTheFirstRequest) {
  ExpectLines({"requests_total{code=\"OK\"} 0", "requests_total{code=\"INTERNAL\"} 0",
               "request_duration_seconds_count{code=\"OTHER\",method=\"Generate\"} 0",
               "request_duration_seconds_count{code=\"OK\",method=\"Detokenize\"} 0",
               "admission_rejected_total{reason=\"no_verifier\"} 0",
               "cancelled_requests_total{cause=\"slow_reader\"} 0",
               "speculative_accepted_by_depth_total{depth=\"1\"} 0",
               "speculative_accepted_by_depth_total{depth=\"deeper\"} 0",
               "speculative_fallback_total{reason=\"verifier_fault\"} 0"});
}

TEST_F(RequestMetricsTest, ADeadlineThatTheClientTellsOfALittleEarlyIsOne) {
  const absl::Time arrived = absl::Now();
  const absl::Time deadline = arrived + absl::Seconds(10);
  EXPECT_TRUE(IsOverByDeadline(deadline, arrived, deadline));
  EXPECT_TRUE(IsOverByDeadline(deadline - absl::Milliseconds(90), arrived, deadline));
  EXPECT_FALSE(IsOverByDeadline(deadline - absl::Milliseconds(200), arrived, deadline));
  EXPECT_TRUE(
      IsOverByDeadline(arrived + absl::Milliseconds(148), arrived, arrived + absl::Milliseconds(150)));
  EXPECT_FALSE(IsOverByDeadline(absl::Now(), arrived, absl::InfiniteFuture()));
  EXPECT_FALSE(
      IsOverByDeadline(absl::Now(), arrived, absl::FromChrono(std::chrono::system_clock::time_point::max())));
}

TEST_F(RequestMetricsTest, RoundsOfTreesAreCountedAndPlainStepsAreNot) {
  Begin(Mode::kTree);
  TokenRun run{.epoch = 1, .first_position = 3, .tokens = {script_[0], script_[1], script_[2]}};
  run.accepted = 2;
  run.verified_nodes = 16;
  router_.drafter.last().listener->OnRun(run);
  TokenRun plain{.epoch = 1, .first_position = 6, .tokens = {script_[3]}};
  router_.drafter.last().listener->OnRun(plain);
  ExpectLines({"speculative_rounds_total 1", "speculative_draft_nodes_total 16",
               "speculative_accepted_tokens_total 2", "speculative_emitted_tokens_total 3",
               "speculative_accepted_length_bucket{le=\"1\"} 0",
               "speculative_accepted_length_bucket{le=\"2\"} 1", "speculative_tree_nodes_sum 16",
               "speculative_accepted_by_depth_total{depth=\"1\"} 1",
               "speculative_accepted_by_depth_total{depth=\"2\"} 1",
               "speculative_accepted_by_depth_total{depth=\"3\"} 0", "detokenize_duration_seconds_count 2"});
}

TEST_F(RequestMetricsTest, AFallbackIsCountedByWhatCausedIt) {
  Begin(Mode::kTree);
  router_.drafter.last().End(absl::UnavailableError("socket closed"));
  ExpectLines({"speculative_fallback_total{reason=\"drafter_fault\"} 1",
               "speculative_fallback_total{reason=\"drafter_unavailable\"} 0"});
  router_.has_drafter = false;
  Begin(Mode::kTree);
  ExpectLines({"speculative_fallback_total{reason=\"drafter_unavailable\"} 1"});
}

TEST_F(RequestMetricsTest, TheIntervalOfAChunkIsSharedByItsTokens) {
  metrics_.FirstTokens(0.2);
  metrics_.TokensSent(3);
  metrics_.MoreTokens(0.04, 4);
  metrics_.TokensSent(4);
  ExpectLines({"time_to_first_token_seconds_bucket{le=\"0.1\"} 0",
               "time_to_first_token_seconds_bucket{le=\"0.25\"} 1", "stream_chunk_interval_seconds_count 1",
               "inter_token_latency_seconds_count 4", "inter_token_latency_seconds_bucket{le=\"0.008\"} 0",
               "inter_token_latency_seconds_bucket{le=\"0.01\"} 4", "generated_tokens_total 7"});
}

TEST_F(RequestMetricsTest, ADeadlineOfTheClientIsNoClientThatLeft) {
  metrics_.GenerateFailed(absl::CancelledError("x"), "", "", /*deadline_passed=*/true);
  metrics_.GenerateFailed(absl::CancelledError("x"), "", "", /*deadline_passed=*/false);
  metrics_.GenerateFailed(absl::UnavailableError("x"), "NO_VERIFIER", "coordinator", false);
  ExpectLines({"cancelled_requests_total{cause=\"deadline\"} 1",
               "cancelled_requests_total{cause=\"client_gone\"} 1",
               "admission_rejected_total{reason=\"no_verifier\"} 1"});
}

}  // namespace
}  // namespace arborist::coordinator
