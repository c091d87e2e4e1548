#include "drafter/drafter_metrics.h"

#include <string>

#include "common/metrics/testing/scrape.h"
#include "drafter/testing/service_fixture.h"

namespace arborist::drafter {
namespace {

using ::testing::Not;
using DrafterMetricsTest = testing::DrafterServiceTest;
using testing::HasSubstr;

TEST_F(DrafterMetricsTest, ASequenceIsCountedByItsRoundsAndItsEnd) {
  MetricRegistry registry;
  DrafterMetrics metrics(registry);
  std::string text = Scrape(registry);
  EXPECT_THAT(text, HasSubstr("\narborist_speculations_total{code=\"OK\"} 0\n"));
  EXPECT_THAT(text, HasSubstr("\narborist_draft_duration_seconds_count 0\n"));
  EXPECT_THAT(text, HasSubstr("\narborist_verify_rpc_duration_seconds_count{kind=\"decode\"} 0\n"));
  StartReady({.metrics = &metrics});
  ExpectWhole(Call(Request()));
  const auto counted = [&] {
    text = Scrape(registry);
    return text.find("\narborist_speculations_total{code=\"OK\"} 1\n") != std::string::npos;
  };
  EXPECT_TRUE(testing::Eventually(counted)) << text;
  EXPECT_THAT(text, Not(HasSubstr("\narborist_draft_duration_seconds_count 0\n")));
  EXPECT_THAT(text, Not(HasSubstr("\narborist_draft_tree_nodes_count 0\n")));
  EXPECT_THAT(text, Not(HasSubstr("\narborist_verify_rpc_duration_seconds_count{kind=\"tree\"} 0\n")));
  EXPECT_THAT(text, HasSubstr("\narborist_sequences{state=\"running\"} 0\n"));
  EXPECT_THAT(text, HasSubstr("\narborist_trees_refused_total 0\n"));
  StopDrafter();  // before the metrics go
  drafter_server_.reset();
}

TEST_F(DrafterMetricsTest, ATreeIsCountedByItsNodesAndItsDepth) {
  MetricRegistry registry;
  DrafterMetrics metrics(registry);
  metrics.Drafted(0.001, TokenTree::RootOnly(TokenId{1}));
  metrics.Drafted(0.001, {.token = {TokenId{1}, TokenId{2}, TokenId{3}, TokenId{4}, TokenId{5}},
                          .parent = {-1, 0, 1, 2, 0},
                          .score = {0, -1, -2, -3, -4}});
  const std::string text = Scrape(registry);
  EXPECT_THAT(text, HasSubstr("\narborist_draft_tree_nodes_sum 4\n"));
  EXPECT_THAT(text, HasSubstr("\narborist_speculative_tree_depth_sum 3\n"));
  EXPECT_THAT(text, HasSubstr("\narborist_speculative_tree_depth_count 2\n"));
  EXPECT_THAT(text, HasSubstr("\narborist_speculative_tree_depth_bucket{le=\"0\"} 1\n"));
}

TEST_F(DrafterMetricsTest, ARefusedCallIsCountedByItsCode) {
  MetricRegistry registry;
  DrafterMetrics metrics(registry);
  StartReady({.metrics = &metrics});
  v1::SpeculateRequest request = Request();
  request.mutable_sequence()->set_fingerprint("another");
  EXPECT_EQ(Call(request).status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(Scrape(registry), HasSubstr("\narborist_speculations_total{code=\"FAILED_PRECONDITION\"} 1\n"));
  StopDrafter();
  drafter_server_.reset();
}

}  // namespace
}  // namespace arborist::drafter
