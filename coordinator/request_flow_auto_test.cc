// AUTO: where a request begins, and how a drafter takes over when drafting pays.
#include <gtest/gtest.h>

#include "coordinator/testing/flow_fixture.h"

namespace arborist::coordinator {
namespace {

using testing::FakeCall;
using testing::FakeRouter;
using testing::RecordingSink;
using testing::RequestFlowTest;

TEST_F(RequestFlowTest, WhereDraftingDidNotPayAutoBeginsAtTheVerifier) {
  router_.drafting_pays = false;
  Begin(Mode::kAuto);
  EXPECT_TRUE(router_.drafter.calls.empty());
  EXPECT_EQ(router_.first.last().start.mode, Mode::kAuto);
  EXPECT_EQ(router_.first.last().start.tree_nodes, 16);
  EXPECT_EQ(router_.first.last().start.drafter_projection_hash, "projection");
  router_.first.last().Send(script_, 0, size(), FinishReason::kMaxTokens, /*verified_nodes=*/0);
  ExpectWholeScript(0);
  EXPECT_FALSE(router_.drafting_pays);
}

TEST_F(RequestFlowTest, WhenDraftingPaysADrafterTakesOverWithoutLosingAToken) {
  for (const int plain : {0, 5}) {
    router_ = FakeRouter();
    router_.drafting_pays = false;
    sink_ = RecordingSink();
    Begin(Mode::kAuto);
    FakeCall& left = router_.first.last();
    if (plain > 0) {
      left.Send(script_, 0, plain, FinishReason::kNone, /*verified_nodes=*/0);
    }
    left.listener->OnDraftingPays();
    EXPECT_FALSE(router_.drafting_pays) << "it may be a trial";
    EXPECT_FALSE(left.cancelled) << "its pages would be lost";
    const PathStart& taken_over = router_.drafter.last().start;
    EXPECT_EQ(taken_over.epoch, 2);
    EXPECT_EQ(taken_over.mode, Mode::kAuto);
    EXPECT_EQ(taken_over.output_so_far, std::vector<TokenId>(script_.begin(), script_.begin() + plain));
    left.End(absl::AbortedError("epoch 2 took over"), "verifier", "TAKEN_OVER");
    router_.drafter.last().Send(script_, plain, size(), FinishReason::kMaxTokens);
    ExpectWholeScript(0);
    EXPECT_TRUE(router_.drafting_pays);
    EXPECT_TRUE(router_.faults.empty());
  }
}

TEST_F(RequestFlowTest, ADecodeThatNobodyTookOverIsCancelledWhenTheDraftersTokensCome) {
  router_.drafting_pays = false;
  Begin(Mode::kAuto);
  FakeCall& left = router_.first.last();
  left.listener->OnDraftingPays();
  router_.drafter.last().Send(script_, 0, 5);  // it works at another verifier of the same fingerprint
  EXPECT_TRUE(left.cancelled);
  router_.drafter.last().Send(script_, 5, size(), FinishReason::kMaxTokens);
  ExpectWholeScript(0);
}

TEST_F(RequestFlowTest, ADrafterThatIsGoneWhenDraftingPaysCostsNoToken) {
  router_.drafting_pays = false;
  Begin(Mode::kAuto);
  router_.first.last().Send(script_, 0, 5, FinishReason::kNone, /*verified_nodes=*/0);
  router_.has_drafter = false;
  router_.first.last().listener->OnDraftingPays();
  ASSERT_EQ(router_.first.calls.size(), 2u);
  EXPECT_EQ(router_.first.last().start.mode, Mode::kOff);
  EXPECT_EQ(router_.first.last().start.epoch, 2);
  router_.first.last().Send(script_, 5, size(), FinishReason::kMaxTokens);
  ExpectWholeScript(1);
}

TEST_F(RequestFlowTest, ACancelledRequestLeavesNothingOpenAtTheVerifier) {
  router_.drafting_pays = false;
  Begin(Mode::kAuto);
  router_.first.last().listener->OnDraftingPays();
  flow_->Cancel(absl::CancelledError("the client is gone"));
  EXPECT_TRUE(router_.first.last().cancelled);
  EXPECT_TRUE(router_.drafter.last().cancelled);
}

TEST_F(RequestFlowTest, ATrialOfTreesDoesNotDecideWhereTheNextBegins) {
  router_.drafting_pays = false;
  Begin(Mode::kAuto);
  const int most = size() - 3;
  router_.first.last().Send(script_, 0, most, FinishReason::kNone, /*verified_nodes=*/0);
  router_.first.last().listener->OnDraftingPays();
  router_.drafter.last().Send(script_, most, size(), FinishReason::kMaxTokens, /*verified_nodes=*/7);
  ExpectWholeScript(0);
  EXPECT_FALSE(router_.drafting_pays);
}

TEST_F(RequestFlowTest, WhatMostOfARequestDidDecidesWhereTheNextBegins) {
  for (const int nodes : {0, 7}) {
    router_ = FakeRouter();
    sink_ = RecordingSink();
    Begin(Mode::kAuto);
    router_.drafter.last().Send(script_, 0, size(), FinishReason::kMaxTokens, nodes);
    EXPECT_EQ(router_.drafting_pays, nodes > 0);
  }
  router_ = FakeRouter();
  sink_ = RecordingSink();
  Begin(Mode::kTree);
  router_.drafter.last().Send(script_, 0, size(), FinishReason::kMaxTokens, /*verified_nodes=*/0);
  EXPECT_TRUE(router_.drafting_pays) << "only AUTO follows what pays";
}

}  // namespace
}  // namespace arborist::coordinator
