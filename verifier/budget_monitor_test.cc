#include "verifier/budget_monitor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "common/metrics/testing/scrape.h"

namespace arborist::verifier {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

class BudgetMonitorTest : public ::testing::Test {
 protected:
  BudgetMonitorTest() : monitor_(metrics_, [this](const std::string& line) { lines_.push_back(line); }) {}
  std::string Metrics() { return Scrape(metrics_); }

  MetricRegistry metrics_;
  std::vector<std::string> lines_;
  BudgetMonitor monitor_;
};

const BudgetReport kTrees = {.features = true,
                             .sampling = SamplingKind::kGreedy,
                             .sequences = 8,
                             .nodes = 16,
                             .trial = false,
                             .trials = 3,
                             .plain_rate = 23000,
                             .tree_rate = 39000};

TEST_F(BudgetMonitorTest, EveryKindStandsAtZeroBeforeTheFirstDecision) {
  const std::string metrics = Metrics();
  for (const SamplingKind kind : kSamplingKinds) {
    for (const char* features : {"no", "yes"}) {
      const std::string labels =
          std::string("{features=\"") + features + "\",temperature=\"" + std::string(Name(kind)) + "\"} 0\n";
      EXPECT_THAT(metrics, HasSubstr("\narborist_auto_nodes" + labels));
      EXPECT_THAT(metrics, HasSubstr("\narborist_auto_trials_total" + labels));
    }
  }
}

TEST_F(BudgetMonitorTest, ADecisionIsSeenInTheMetricsOfItsKindAndInALine) {
  monitor_.Report(kTrees);
  const std::string metrics = Metrics();
  EXPECT_THAT(metrics, HasSubstr("\narborist_auto_nodes{features=\"yes\",temperature=\"0\"} 16\n"));
  EXPECT_THAT(metrics, HasSubstr("\narborist_auto_trials_total{features=\"yes\",temperature=\"0\"} 3\n"));
  EXPECT_THAT(metrics,
              HasSubstr("\narborist_auto_expected_tokens_per_second{choice=\"plain\",features=\"yes\","
                        "temperature=\"0\"} 23000\n"));
  EXPECT_THAT(metrics,
              HasSubstr("\narborist_auto_expected_tokens_per_second{choice=\"trees\",features=\"yes\","
                        "temperature=\"0\"} 39000\n"));
  EXPECT_THAT(lines_, ElementsAre("level=INFO event=auto temperature=0 features=yes sequences=8 nodes=16 "
                                  "plain_tokens_per_second=23000 tree_tokens_per_second=39000 trials=3"));
}

TEST_F(BudgetMonitorTest, TrialsAndRepeatsAndHastyChangesWriteNoLine) {
  BudgetReport report = kTrees;
  report.trial = true;
  monitor_.Report(report);
  EXPECT_THAT(lines_, SizeIs(0));
  monitor_.Report(kTrees);
  monitor_.Report(kTrees);
  report = kTrees;
  report.nodes = 0;  // within ten seconds
  monitor_.Report(report);
  EXPECT_THAT(lines_, SizeIs(1));
  EXPECT_THAT(Metrics(), HasSubstr("\narborist_auto_nodes{features=\"yes\",temperature=\"0\"} 0\n"));
}

}  // namespace
}  // namespace arborist::verifier
