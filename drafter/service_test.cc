// What a drafter answers, over gRPC.
#include "drafter/testing/service_fixture.h"

namespace arborist::drafter::testing {
namespace {

TEST_F(DrafterServiceTest, TreeRoundsCommitTheRightTokensWithTheirCounts) {
  StartReady();
  const Answer answer = Call(Request());
  ASSERT_NO_FATAL_FAILURE(ExpectWhole(answer));
  const v1::Tokens& first = answer.messages.front();
  EXPECT_EQ(first.epoch(), 1);
  EXPECT_EQ(first.round(), 1);
  EXPECT_EQ(first.first_position(), 2);
  EXPECT_EQ(first.verified_nodes(), 8);
  EXPECT_EQ(first.token_ids_size(), 5);  // 4 right nodes among 8, then the target's own token
  EXPECT_EQ(first.accepted(), 4);
  EXPECT_EQ(first.log_probs_size(), 5);
  EXPECT_GT(first.seconds().wire(), 0);
  EXPECT_GE(first.seconds().draft(), 0);
  EXPECT_EQ(first.seconds().verify(), 1e-6);
  EXPECT_EQ(answer.messages.size(), 10u);
}

TEST_F(DrafterServiceTest, LogProbabilitiesAndFinishReasonArePassedOnWhole) {
  for (const bool plain : {false, true}) {
    verifier_.next_budget = plain ? 0 : 16;
    verifier_.finish_reason = v1::FINISH_REASON_CONSTRAINT;
    if (!plain) {
      StartReady();
    }
    v1::SpeculateRequest request = Request(plain ? "plain" : "tree");
    v1::Sequence& sequence = *request.mutable_sequence();
    sequence.add_prompt(3);
    sequence.mutable_sampling()->set_top_log_probs(3);
    sequence.mutable_sampling()->set_prompt_log_probs(true);
    if (plain) {  // a long Decode, whose messages may join
      sequence.set_mode(v1::SPECULATION_MODE_AUTO);
      verifier_.first_budget = 0;
    }
    const Answer answer = Call(request);
    ASSERT_TRUE(answer.status.ok()) << answer.status;
    ASSERT_EQ(answer.tokens.size(), 50u);
    ASSERT_EQ(answer.prompt_log_probs.size(), 2u);
    for (int i = 0; i < 2; ++i) {
      EXPECT_EQ(answer.prompt_log_probs[i].first_position(), i + 1);
      ASSERT_EQ(answer.prompt_log_probs[i].log_probs_size(), 1);
      EXPECT_EQ(answer.prompt_log_probs[i].log_probs(0), static_cast<float>(-i - 1));
    }
    for (const v1::Tokens& message : answer.messages) {
      ASSERT_EQ(message.log_probs_size(), message.token_ids_size());
      ASSERT_EQ(message.top_log_probs_size(), message.token_ids_size());
      for (int i = 0; i < message.token_ids_size(); ++i) {
        EXPECT_EQ(message.log_probs(i), static_cast<float>(-message.first_position() - i));
        ASSERT_EQ(message.top_log_probs(i).tokens_size(), 3);
        for (int j = 0; j < 3; ++j) {
          EXPECT_EQ(message.top_log_probs(i).tokens(j).token_id(), message.token_ids(i) + j);
          EXPECT_EQ(message.top_log_probs(i).tokens(j).log_prob(), static_cast<float>(-j));
        }
      }
    }
    EXPECT_EQ(answer.messages.back().finish_reason(), v1::FINISH_REASON_CONSTRAINT);
  }
}

TEST_F(DrafterServiceTest, DraftsFollowTheConstraintFromTheOutputSoFarOn) {
  std::vector<std::string> bytes;  // token v below 256 is byte v, the others have no text
  for (int byte = 0; byte < 256; ++byte) {
    bytes.emplace_back(1, static_cast<char>(byte));
  }
  StartReady({.vocabulary = std::make_shared<const TokenVocabulary>(std::move(bytes))});
  v1::SpeculateRequest request = Request();
  v1::Sequence& sequence = *request.mutable_sequence();
  sequence.mutable_sampling()->set_regex("\\t[^z]*");  // the text begins with token 9
  for (int token = 3; token < 9; ++token) {
    sequence.add_prompt(token);
  }
  sequence.add_output_so_far(9);
  const Answer answer = Call(request);
  ASSERT_TRUE(answer.status.ok()) << answer.status;
  EXPECT_EQ(answer.tokens.size(), 49u);
  // Of what is drafted only the right half has text at all: eight of them instead of four.
  EXPECT_EQ(answer.messages.front().verified_nodes(), 8);
  EXPECT_EQ(answer.messages.front().accepted(), 8);
  // A constraint that does not compile is the verifier's to refuse.
  sequence.set_request_id("broken");
  sequence.mutable_sampling()->set_regex("(");
  const Answer unfiltered = Call(request);
  ASSERT_TRUE(unfiltered.status.ok()) << unfiltered.status;
  EXPECT_EQ(unfiltered.messages.front().accepted(), 4);
}

TEST_F(DrafterServiceTest, TheVerifierHearsEveryFieldOfTheSampling) {
  StartReady();
  v1::SpeculateRequest request = Request();
  v1::Sampling& sampling = *request.mutable_sequence()->mutable_sampling();
  sampling.set_repetition_penalty(1.5f);
  sampling.set_presence_penalty(0.5f);
  sampling.set_frequency_penalty(-0.5f);
  sampling.add_logit_bias()->set_token_id(4);
  sampling.add_allowed_token_ids(7);
  sampling.set_min_tokens(3);
  sampling.add_stop_ids(9);
  sampling.set_top_log_probs(20);
  sampling.set_prompt_log_probs(true);
  sampling.set_json_schema("{}");
  sampling.add_bad_words("no");
  ASSERT_TRUE(Call(request).status.ok());
  EXPECT_EQ(verifier_.requests().front().open().sequence().SerializeAsString(),
            request.sequence().SerializeAsString());
}

TEST_F(DrafterServiceTest, TokensThatLeaveAfterTheNextTreeAreTheSame) {
  StartReady({.tokens_follow_tree = true});
  const Answer answer = Call(Request());
  ASSERT_NO_FATAL_FAILURE(ExpectWhole(answer));
  EXPECT_EQ(answer.messages.size(), 10u);
  EXPECT_EQ(answer.messages.front().accepted(), 4);
  v1::SpeculateRequest plain = Request("plain");
  plain.mutable_sequence()->set_mode(v1::SPECULATION_MODE_AUTO);
  verifier_.next_budget = 0;
  ExpectWhole(Call(plain));
}

TEST_F(DrafterServiceTest, ChainHasAtMostAsManyNodesAsTheProposerIsDeep) {
  StartReady();
  v1::SpeculateRequest request = Request();
  request.mutable_sequence()->set_mode(v1::SPECULATION_MODE_CHAIN);
  request.mutable_sequence()->set_tree_nodes(31);
  const Answer answer = Call(request);
  ASSERT_NO_FATAL_FAILURE(ExpectWhole(answer));
  EXPECT_EQ(answer.messages.front().verified_nodes(), 7);
  EXPECT_EQ(answer.messages.front().accepted(), 7);
}

TEST_F(DrafterServiceTest, AutoFollowsTheVerifiersBudgetAndTreeDoesNot) {
  StartReady();
  verifier_.next_budget = 0;
  v1::SpeculateRequest request = Request();
  request.mutable_sequence()->set_mode(v1::SPECULATION_MODE_AUTO);
  const Answer answer = Call(request);
  ASSERT_NO_FATAL_FAILURE(ExpectWhole(answer));
  EXPECT_EQ(answer.messages.front().verified_nodes(), 8);  // nothing is known of the budget yet
  EXPECT_EQ(answer.messages.back().verified_nodes(), 0);
  const Answer tree = Call(Request("r2"));
  ASSERT_NO_FATAL_FAILURE(ExpectWhole(tree));
  EXPECT_EQ(tree.messages.back().verified_nodes(), 8);
}

TEST_F(DrafterServiceTest, WhileDraftingDoesNotPayOneLongDecodeRunsUntilItDoes) {
  proposer_.hash_ = "p1";
  verifier_.feature_rows_on_attach = 1;
  verifier_.first_budget = 0;
  verifier_.next_budget = 0;
  verifier_.pays_from = 22;
  StartReady();
  v1::SpeculateRequest request = Request();
  request.mutable_sequence()->set_mode(v1::SPECULATION_MODE_AUTO);
  ExpectWhole(Call(request));
  const std::vector<v1::VerifyRequest> requests = verifier_.requests();
  ASSERT_TRUE(requests[1].has_decode());
  EXPECT_TRUE(requests[1].decode().until_drafting_pays());
  EXPECT_EQ(requests[1].decode().max_tokens(), 256);
  ASSERT_TRUE(requests[2].has_tree());
  EXPECT_EQ(requests[2].tree().tree().token_ids_size(), 9);
  EXPECT_GT(proposer_.feature_rows_, 20);  // those that came meanwhile too
}

TEST_F(DrafterServiceTest, FeaturesAreNotComputedWhileNothingIsDrafted) {
  proposer_.hash_ = "p1";
  verifier_.first_budget = 0;
  verifier_.next_budget = 0;
  StartReady();
  v1::SpeculateRequest request = Request();
  request.mutable_sequence()->set_mode(v1::SPECULATION_MODE_AUTO);
  ExpectWhole(Call(request));
  EXPECT_EQ(proposer_.feature_rows_, 0);
  EXPECT_EQ(proposer_.proposals_, 0);
}

TEST_F(DrafterServiceTest, SequenceGoesOnFromAnyPosition) {
  StartReady();
  v1::SpeculateRequest request = Request("r1", 5);
  for (int i = 0; i < 20; ++i) {
    request.mutable_sequence()->add_output_so_far(3 + i);
  }
  const Answer answer = Call(request);
  EXPECT_TRUE(answer.status.ok()) << answer.status;
  ASSERT_EQ(answer.tokens.size(), 30u);
  EXPECT_EQ(answer.tokens.front(), 23);
  EXPECT_EQ(answer.messages.front().first_position(), 22);
  EXPECT_EQ(answer.messages.front().epoch(), 5);
}

TEST_F(DrafterServiceTest, DecodesPlainlyUntilTheFeaturesAreThere) {
  proposer_.hash_ = "p1";
  StartReady();
  const Answer answer = Call(Request());
  ASSERT_NO_FATAL_FAILURE(ExpectWhole(answer));
  EXPECT_EQ(answer.messages.front().verified_nodes(), 0);
  EXPECT_EQ(answer.messages.front().accepted(), 0);
  EXPECT_EQ(answer.messages.back().verified_nodes(), 8);
  EXPECT_GT(proposer_.feature_rows_, 40);
  const v1::VerifyRequest open = verifier_.requests().front();
  EXPECT_EQ(open.open().projection_hash(), "p1");
  EXPECT_EQ(open.open().feature_window(), 2);
}

// The verifier's context may be shorter than the proposer's window, and it refuses a window beyond its
// context.
TEST_F(DrafterServiceTest, NoMoreFeatureRowsAreAskedForThanThereAreTokens) {
  proposer_.hash_ = "p1";
  StartReady();
  v1::SpeculateRequest request = Request();
  request.mutable_sequence()->clear_output_so_far();
  request.mutable_sequence()->clear_prompt();
  for (const int id : {1, 2, 3}) {
    request.mutable_sequence()->add_prompt(id);
  }
  request.mutable_sequence()->add_output_so_far(4);
  (void)Call(request);
  EXPECT_EQ(verifier_.requests().front().open().feature_window(), 4);
}

TEST_F(DrafterServiceTest, FeaturesOnAttachMakeTheFirstRoundATree) {
  proposer_.hash_ = "p1";
  verifier_.feature_rows_on_attach = 1;
  StartReady();
  const Answer answer = Call(Request());
  ASSERT_NO_FATAL_FAILURE(ExpectWhole(answer));
  EXPECT_EQ(answer.messages.front().verified_nodes(), 8);
}

TEST_F(DrafterServiceTest, NoiseIsCoupledUnlessSwitchedOff) {
  v1::SpeculateRequest request = Request();
  request.mutable_sequence()->mutable_sampling()->set_temperature(0.7f);
  StartReady();
  ExpectWhole(Call(request));
  EXPECT_EQ(proposer_.temperature_, 0.7f);
  StopDrafter();
  serving_ = false;
  StartReady({.coupled = false});
  request.mutable_sequence()->set_request_id("r2");
  ExpectWhole(Call(request));
  EXPECT_EQ(proposer_.temperature_, 0.0f);
}

TEST_F(DrafterServiceTest, HandshakeRefusesAVerifierThatDoesNotFit) {
  proposer_.hash_ = "p1";
  verifier_.wrong_projection = true;
  StartDrafter();
  const auto info = [this] {
    grpc::ClientContext context;
    v1::DrafterServiceGetInfoResponse response;
    EXPECT_TRUE(stub_->GetInfo(&context, {}, &response).ok());
    return response;
  };
  EXPECT_TRUE(Eventually([&] { return !info().verifier_fingerprint().empty(); }));
  EXPECT_FALSE(info().ready());
  EXPECT_THAT(info().not_ready_reason(), HasSubstr("projection_hash=p2 of the verifier, expected p1"));
  EXPECT_FALSE(serving_);
  verifier_.wrong_projection = false;
  verifier_.protocol_version = 9;
  EXPECT_TRUE(Eventually([&] { return info().not_ready_reason().find("protocol_version=9") == 0; }));
  verifier_.protocol_version = 1;
  EXPECT_TRUE(Eventually([&] { return info().ready(); }));
  EXPECT_TRUE(Eventually([this] { return serving_.load(); }));
  EXPECT_THAT(reasons(), ::testing::Contains(HasSubstr("projection_hash=p2")));
  EXPECT_THAT(reasons(), ::testing::Contains(HasSubstr("protocol_version=9")));
  EXPECT_EQ(info().proposer(), "counting");
  EXPECT_EQ(info().max_depth(), 7);
  EXPECT_EQ(info().max_tree_nodes(), 31);
  EXPECT_TRUE(serving_);
}

TEST_F(DrafterServiceTest, BadRequestsNameTheField) {
  StartReady();
  struct Case {
    std::function<void(v1::Sequence&)> spoil;
    absl::StatusCode code;
    std::string reason;
    std::string text;
  };
  const auto bad = absl::StatusCode::kInvalidArgument;
  const auto precondition = absl::StatusCode::kFailedPrecondition;
  const std::vector<Case> cases = {
      {[](auto& s) { s.set_protocol_version(2); }, precondition, "PROTOCOL_VERSION_MISMATCH",
       "=2, expected 1"},
      {[](auto& s) { s.set_fingerprint("f9"); }, precondition, "FINGERPRINT_MISMATCH", "=f9, expected f1"},
      {[](auto& s) { s.clear_request_id(); }, bad, "BAD_REQUEST", "sequence.request_id="},
      {[](auto& s) { s.set_epoch(0); }, bad, "BAD_REQUEST", "sequence.epoch=0"},
      {[](auto& s) { s.clear_prompt(); }, bad, "BAD_REQUEST", "sequence.prompt=(0 tokens)"},
      {[](auto& s) { s.set_prompt(1, -4); }, bad, "BAD_REQUEST", "sequence.prompt[1]=-4"},
      {[](auto& s) { s.set_prompt(1, 5000); }, bad, "BAD_REQUEST",
       "sequence.prompt[1]=5000, expected an id in [0, 5000)"},
      {[](auto& s) { s.clear_sampling(); }, bad, "BAD_REQUEST", "sequence.sampling=unset"},
      {[](auto& s) { s.mutable_sampling()->set_temperature(-1); }, bad, "BAD_REQUEST", "temperature=-1"},
      {[](auto& s) { s.set_tree_nodes(0); }, bad, "BAD_REQUEST",
       "sequence.tree_nodes=0, expected a value in [1, 31]"},
      {[](auto& s) { s.set_tree_nodes(32); }, bad, "BAD_REQUEST", "sequence.tree_nodes=32"},
      {[](auto& s) { s.set_mode(v1::SPECULATION_MODE_OFF); }, bad, "BAD_REQUEST", "sequence.mode=4"},
  };
  for (const Case& c : cases) {
    v1::SpeculateRequest request = Request();
    c.spoil(*request.mutable_sequence());
    ExpectError(Call(request).status, c.code, c.reason, "drafter", c.text);
  }
  ExpectError(Call({}).status, bad, "BAD_REQUEST", "drafter", "sequence=unset");
  EXPECT_TRUE(verifier_.requests().empty());
}

TEST_F(DrafterServiceTest, BoundsItsSequencesAndLetsAHigherEpochTakeOver) {
  StartReady({.max_sequences = 2, .peer_silence = std::chrono::seconds(20)});
  verifier_.silent_in_round = 1;
  Answer first;
  Answer second;
  std::thread one([&] { first = Call(Request("same", 1)); });
  ASSERT_TRUE(Eventually([this] { return verifier_.requests().size() == 2; }));  // its open and tree
  ExpectError(Call(Request("same", 1)).status, absl::StatusCode::kFailedPrecondition, "STALE_EPOCH",
              "drafter", "expected more than the running 1");
  std::thread two([&] { second = Call(Request("other", 1)); });
  ASSERT_TRUE(Eventually([this] { return verifier_.requests().size() == 4; }));
  const absl::Status full = Call(Request("third")).status;
  ExpectError(full, absl::StatusCode::kResourceExhausted, "QUEUE_FULL", "drafter", "2 sequences are running");
  EXPECT_TRUE(RetryDelayOf(full).has_value());
  StopDrafter();
  one.join();
  two.join();
  EXPECT_FALSE(first.status.ok());
  EXPECT_FALSE(second.status.ok());
}

}  // namespace
}  // namespace arborist::drafter::testing
