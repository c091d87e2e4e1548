#include "coordinator/peer_router.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>

#include "coordinator/testing/fakes.h"

namespace arborist::coordinator {
namespace {

using testing::FakeDrafter;
using testing::FakeVerifier;

VerifierFacts Verifier(const std::string& fingerprint) {
  return {.protocol_version = 1,
          .fingerprint = fingerprint,
          .projection_hash = "p",
          .model_name = "m",
          .vocabulary_size = 10,
          .context_length = 20,
          .max_tree_nodes = 255};
}

DrafterFacts Drafter(const std::string& fingerprint, const std::string& projection = "p") {
  return {.protocol_version = 1,
          .proposer = "dflash",
          .projection_hash = projection,
          .verifier_fingerprint = fingerprint,
          .ready = true};
}

class PeerRouterTest : public ::testing::Test {
 protected:
  PeerRouterTest() {
    std::vector<std::unique_ptr<VerifierClient>> verifiers;
    std::vector<std::unique_ptr<DrafterClient>> drafters;
    for (int i = 0; i < 2; ++i) {
      verifiers.push_back(std::make_unique<FakeVerifier>("v"));
      drafters.push_back(std::make_unique<FakeDrafter>("d"));
      verifiers_.push_back(static_cast<FakeVerifier*>(verifiers.back().get()));
      drafters_.push_back(static_cast<FakeDrafter*>(drafters.back().get()));
    }
    router_ = std::make_unique<PeerRouter>(
        PeerRouter::Settings{.protocol_version = 1, .probe_interval = absl::Milliseconds(1)},
        std::move(verifiers), std::move(drafters));
  }
  void Probe() {
    router_->ProbeVerifiers();
    router_->ProbeDrafters();
  }

  std::vector<FakeVerifier*> verifiers_;
  std::vector<FakeDrafter*> drafters_;
  std::unique_ptr<PeerRouter> router_;
};

TEST_F(PeerRouterTest, NobodyIsUsableBeforeTheFirstAnswer) {
  EXPECT_FALSE(router_->Model().has_value());
  EXPECT_EQ(router_->ChooseVerifier("a", {}), nullptr);
  Probe();
  EXPECT_FALSE(router_->Model().has_value());
}

TEST_F(PeerRouterTest, TheBestVerifierThatAnswersIsTheModelAndEqualsStandIn) {
  verifiers_[1]->facts = Verifier("a");
  Probe();
  EXPECT_EQ(router_->Model()->fingerprint, "a");
  EXPECT_EQ(router_->ChooseVerifier("a", {}), verifiers_[1]);
  verifiers_[0]->facts = Verifier("a");
  Probe();
  EXPECT_EQ(router_->ChooseVerifier("a", {}), verifiers_[0]);
  EXPECT_EQ(router_->ChooseVerifier("a", {verifiers_[0]}), verifiers_[1]);
  EXPECT_EQ(router_->ChooseVerifier("a", {verifiers_[0], verifiers_[1]}), nullptr);
  EXPECT_EQ(router_->ChooseVerifier("b", {}), nullptr);
}

TEST_F(PeerRouterTest, WhyThereIsNoOtherVerifierNamesWhatAilsEach) {
  verifiers_[0]->facts = Verifier("a");
  EXPECT_EQ(router_->WhyNoOther("a", {verifiers_[0]}), "no other can be used: v (it has not answered yet)");
  verifiers_[1]->facts = absl::DeadlineExceededError("deadline");
  Probe();
  const std::vector<const VerifierClient*> first = {verifiers_[0]};
  for (int i = 0; i < 4; ++i) {
    Probe();  // some misses are allowed
  }
  EXPECT_EQ(router_->WhyNoOther("a", first), "no other can be used: v (it does not answer)");
  verifiers_[1]->facts = absl::UnavailableError("a kernel is wrong");
  Probe();
  EXPECT_EQ(router_->WhyNoOther("a", first), "no other can be used: v (a kernel is wrong)");
  verifiers_[1]->facts = Verifier("b");
  Probe();
  EXPECT_EQ(router_->WhyNoOther("a", first), "no other can be used: v (it has another fingerprint)");
  router_->ReportFault(*verifiers_[1]);
  EXPECT_EQ(router_->WhyNoOther("a", first), "no other can be used: v (it broke a stream)");
  EXPECT_EQ(router_->WhyNoOther("a", {verifiers_[0], verifiers_[1]}), "no other is left");
}

TEST_F(PeerRouterTest, AnotherProtocolVersionIsNotUsable) {
  verifiers_[0]->facts = Verifier("a");
  verifiers_[0]->facts->protocol_version = 2;
  Probe();
  EXPECT_FALSE(router_->Model().has_value());
}

TEST_F(PeerRouterTest, OnlyADrafterThatFitsTheVerifierIsChosen) {
  verifiers_[0]->facts = Verifier("a");
  const auto chosen = [&](const DrafterFacts& facts) {
    drafters_[1]->facts = facts;
    Probe();
    return router_->ChooseDrafter(*verifiers_[0]);
  };
  EXPECT_EQ(chosen(Drafter("a")), drafters_[1]);
  EXPECT_EQ(chosen(Drafter("b")), nullptr);
  EXPECT_EQ(chosen(Drafter("a", "q")), nullptr);
  EXPECT_EQ(chosen(Drafter("a", "")), drafters_[1]) << "a drafter without features fits any projection";
  DrafterFacts loading = Drafter("a");
  loading.ready = false;
  EXPECT_EQ(chosen(loading), nullptr);
  EXPECT_TRUE(router_->Drafters().configured);
  EXPECT_FALSE(router_->Drafters().usable);
  drafters_[0]->facts = Drafter("a");
  Probe();
  EXPECT_EQ(router_->ChooseDrafter(*verifiers_[0]), drafters_[0]);
  EXPECT_EQ(router_->Drafters().proposer, "dflash");
  EXPECT_EQ(router_->ChooseDrafter(*verifiers_[1]), nullptr) << "that verifier is not known";
}

TEST_F(PeerRouterTest, APeerThatBrokeIsOutUntilItAnswersAgain) {
  verifiers_[0]->facts = Verifier("a");
  drafters_[0]->facts = Drafter("a");
  Probe();
  router_->ReportFault(*drafters_[0]);
  EXPECT_EQ(router_->ChooseDrafter(*verifiers_[0]), nullptr);
  router_->ReportFault(*verifiers_[0]);
  EXPECT_FALSE(router_->Model().has_value());
  Probe();
  EXPECT_EQ(router_->ChooseDrafter(*verifiers_[0]), drafters_[0]);
}

TEST_F(PeerRouterTest, ALateAnswerOfAVerifierIsForgivenAFewTimesARefusedConnectionNever) {
  verifiers_[0]->facts = Verifier("a");
  Probe();
  verifiers_[0]->facts = absl::DeadlineExceededError("late");
  for (int i = 0; i < 3; ++i) {
    Probe();
    EXPECT_TRUE(router_->Model().has_value());
  }
  Probe();
  EXPECT_FALSE(router_->Model().has_value());
  verifiers_[0]->facts = Verifier("a");
  Probe();
  verifiers_[0]->facts = absl::UnavailableError("refused");
  Probe();
  EXPECT_FALSE(router_->Model().has_value());
}

TEST_F(PeerRouterTest, WhetherDraftingPaysIsKeptForEachVerifierAndKindOfTemperature) {
  drafters_[0]->facts = Drafter("a", "p");
  Probe();
  const DrafterClient& drafter = *drafters_[0];
  EXPECT_TRUE(router_->DraftingPays(*verifiers_[0], drafter, 1));
  router_->ReportDrafting(*verifiers_[0], drafter, 1, false);
  EXPECT_FALSE(router_->DraftingPays(*verifiers_[0], drafter, 0.8f));
  EXPECT_TRUE(router_->DraftingPays(*verifiers_[0], drafter, 0.6f));
  EXPECT_TRUE(router_->DraftingPays(*verifiers_[0], drafter, 0));
  EXPECT_TRUE(router_->DraftingPays(*verifiers_[1], drafter, 1));
  router_->ReportDrafting(*verifiers_[0], drafter, 0.9f, true);
  EXPECT_TRUE(router_->DraftingPays(*verifiers_[0], drafter, 1));
}

TEST_F(PeerRouterTest, ThatDraftsWithFeaturesDoNotPaySaysNothingOfDraftsWithout) {
  drafters_[0]->facts = Drafter("a", "p");
  drafters_[1]->facts = Drafter("a", "");
  Probe();
  router_->ReportDrafting(*verifiers_[0], *drafters_[0], 0, false);
  EXPECT_FALSE(router_->DraftingPays(*verifiers_[0], *drafters_[0], 0));
  EXPECT_TRUE(router_->DraftingPays(*verifiers_[0], *drafters_[1], 0));
}

TEST_F(PeerRouterTest, ADraftersProjectionIsWhatItSaid) {
  drafters_[0]->facts = Drafter("a", "p");
  drafters_[1]->facts = Drafter("a", "");
  Probe();
  EXPECT_EQ(router_->ProjectionOf(*drafters_[0]), "p");
  EXPECT_EQ(router_->ProjectionOf(*drafters_[1]), "");
}

TEST_F(PeerRouterTest, ChangesOfTheVerifiersAreTold) {
  verifiers_[0]->facts = Verifier("a");
  std::promise<void> ready;
  router_->Run([&](bool usable) {
    if (usable) {
      ready.set_value();
    }
  });
  EXPECT_EQ(ready.get_future().wait_for(std::chrono::seconds(20)), std::future_status::ready);
  router_->Stop();
}

}  // namespace
}  // namespace arborist::coordinator
