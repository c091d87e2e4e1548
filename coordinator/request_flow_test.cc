#include "coordinator/request_flow.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "coordinator/testing/fakes.h"

namespace arborist::coordinator {
namespace {

using ::testing::ElementsAre;
using testing::FakeRouter;
using ::testing::HasSubstr;
using testing::RecordingSink;

const Tokenizer& SharedTokenizer() {
  static const Tokenizer* tokenizer = [] {
    auto loaded =
        Tokenizer::Load(std::string(std::getenv("ARBORIST_SOURCE_DIR")) + "/tests/golden/tokenizer");
    EXPECT_TRUE(loaded.ok()) << loaded.status();
    return new Tokenizer(*std::move(loaded));
  }();
  return *tokenizer;
}

// One token for each byte: the tests then know where every character is cut.
std::vector<TokenId> ByteIds(const std::string& bytes) {
  std::vector<TokenId> out;
  for (const char byte : bytes) {
    for (int id = 0; id < SharedTokenizer().size(); ++id) {
      if (SharedTokenizer().Bytes(TokenId{id}) == std::string(1, byte)) {
        out.push_back(TokenId{id});
        break;
      }
    }
  }
  EXPECT_EQ(out.size(), bytes.size());
  return out;
}

class RequestFlowTest : public ::testing::Test {
 protected:
  void Begin(Mode mode, std::vector<std::string> stops = {}) {
    start_.request_id = "r1";
    if (start_.prompt.empty()) {
      start_.prompt = ByteIds("abc");
    }
    start_.mode = mode;
    start_.tree_nodes = 16;
    start_.fingerprint = "print";
    if (start_.sampling.max_tokens == 0) {
      start_.sampling.max_tokens = static_cast<int32_t>(script_.size());
    }
    settings_.vocabulary_size = SharedTokenizer().size();
    settings_.drafters_configured = true;
    flow_ =
        std::make_shared<RequestFlow>(start_, std::move(stops), settings_, router_, SharedTokenizer(), sink_);
    flow_->Start();
  }

  void ExpectWholeScript(int fallbacks) {
    EXPECT_EQ(sink_.finished, 1);
    EXPECT_EQ(sink_.failed, 0) << sink_.error.status;
    EXPECT_EQ(sink_.tokens, script_);
    EXPECT_EQ(sink_.text, SharedTokenizer().Decode(script_, true));
    EXPECT_EQ(sink_.answer.fallbacks, fallbacks);
    EXPECT_EQ(sink_.answer.finish, FinishReason::kMaxTokens);
  }

  int size() const { return static_cast<int>(script_.size()); }

  std::vector<TokenId> script_ = ByteIds("the whole right answer");
  PathStart start_;
  FlowSettings settings_{
      .peer_silence = absl::Milliseconds(300), .vocabulary_size = 0, .context_length = 1000};
  FakeRouter router_;
  RecordingSink sink_;
  std::shared_ptr<RequestFlow> flow_;
};

TEST_F(RequestFlowTest, ADraftersRunsBecomeTheAnswer) {
  Begin(Mode::kTree);
  ASSERT_EQ(router_.drafter.calls.size(), 1u);
  EXPECT_TRUE(router_.first.calls.empty());
  router_.drafter.last().Send(script_, 0, 5);
  EXPECT_EQ(sink_.text, "the w");
  router_.drafter.last().Send(script_, 5, 6);
  router_.drafter.last().Send(script_, 6, size(), FinishReason::kMaxTokens);
  ExpectWholeScript(0);
  EXPECT_THAT(sink_.answer.accepted_lengths, ElementsAre(5, 1, size() - 6));
  EXPECT_EQ(sink_.answer.rounds, 3);
  EXPECT_EQ(sink_.answer.verified_nodes, 21);
  EXPECT_FALSE(router_.drafter.last().cancelled);
  router_.drafter.last().End(absl::OkStatus());
  EXPECT_EQ(sink_.finished, 1);
}

TEST_F(RequestFlowTest, OffGoesToTheVerifierAndIsNoFallback) {
  Begin(Mode::kOff);
  EXPECT_TRUE(router_.drafter.calls.empty());
  router_.first.last().Send(script_, 0, size(), FinishReason::kMaxTokens);
  ExpectWholeScript(0);
}

TEST_F(RequestFlowTest, WithoutADrafterFromTheStartDecodingIsPlainAndCounted) {
  router_.has_drafter = false;
  Begin(Mode::kTree);
  EXPECT_EQ(router_.first.last().start.mode, Mode::kOff);
  router_.first.last().Send(script_, 0, size(), FinishReason::kMaxTokens);
  ExpectWholeScript(1);
}

TEST_F(RequestFlowTest, ADrafterLostAtAnyPointCostsNoToken) {
  for (int lost_after = 0; lost_after < size(); ++lost_after) {
    router_ = FakeRouter();
    sink_ = RecordingSink();
    Begin(Mode::kTree);
    if (lost_after > 0) {
      router_.drafter.last().Send(script_, 0, lost_after);
    }
    router_.drafter.last().End(absl::UnavailableError("socket closed"));
    ASSERT_EQ(router_.first.calls.size(), 1u);
    const PathStart& resumed = router_.first.last().start;
    EXPECT_EQ(resumed.epoch, 2);
    EXPECT_EQ(resumed.prompt, start_.prompt);
    EXPECT_EQ(resumed.output_so_far, std::vector<TokenId>(script_.begin(), script_.begin() + lost_after));
    router_.first.last().Send(script_, lost_after, size(), FinishReason::kMaxTokens);
    ExpectWholeScript(1);
    EXPECT_THAT(router_.faults, ElementsAre("drafter"));
  }
}

TEST_F(RequestFlowTest, ASilentDrafterIsGivenUpAndItsLateWordsAreDropped) {
  Begin(Mode::kTree);
  auto drafter = router_.drafter.calls.back();
  drafter->Send(script_, 0, 4);
  absl::Time now = absl::Now();
  flow_->Tick(now);
  for (int i = 0; i < 11; ++i) {
    flow_->Tick(now += absl::Milliseconds(25));
  }
  EXPECT_TRUE(router_.first.calls.empty()) << "given up before 300 ms";
  drafter->listener->OnProgress();
  for (int i = 0; i < 11; ++i) {
    flow_->Tick(now += absl::Milliseconds(25));
  }
  EXPECT_TRUE(router_.first.calls.empty()) << "given up in spite of a sign of life";
  flow_->Tick(now += absl::Milliseconds(25));
  ASSERT_EQ(router_.first.calls.size(), 1u);
  EXPECT_TRUE(drafter->cancelled);
  drafter->Send(script_, 4, 9);  // it wakes up
  drafter->End(absl::CancelledError("cancelled"));
  router_.first.last().Send(script_, 4, size(), FinishReason::kMaxTokens);
  ExpectWholeScript(1);
}

TEST_F(RequestFlowTest, SleepOfTheCoordinatorItselfIsNotTheDraftersSilence) {
  Begin(Mode::kTree);
  const absl::Time now = absl::Now();
  flow_->Tick(now);
  flow_->Tick(now + absl::Seconds(20));
  EXPECT_TRUE(router_.first.calls.empty());
}

TEST_F(RequestFlowTest, AGapIsAFaultOfThePathAndNeverText) {
  Begin(Mode::kTree);
  router_.drafter.last().Send(script_, 0, 4);
  router_.drafter.last().Send(script_, 6, 9);
  EXPECT_EQ(sink_.tokens.size(), 4u);
  EXPECT_TRUE(router_.drafter.last().cancelled);
  EXPECT_EQ(router_.first.last().start.output_so_far.size(), 4u);
  router_.first.last().Send(script_, 4, size(), FinishReason::kMaxTokens);
  ExpectWholeScript(1);
}

TEST_F(RequestFlowTest, AnEqualRepeatIsDroppedAndADifferingOneIsAFault) {
  Begin(Mode::kTree);
  router_.drafter.last().Send(script_, 0, 6);
  router_.drafter.last().Send(script_, 3, 6);  // nothing new
  router_.drafter.last().Send(script_, 4, 8);  // two new
  EXPECT_EQ(sink_.tokens.size(), 8u);
  std::vector<TokenId> wrong = script_;
  wrong[7] = TokenId{Raw(wrong[7]) + 1};
  router_.drafter.last().Send(wrong, 7, 10);
  EXPECT_EQ(sink_.tokens.size(), 8u);
  router_.first.last().Send(script_, 8, size(), FinishReason::kMaxTokens);
  ExpectWholeScript(1);
  EXPECT_EQ(sink_.answer.rounds, 3);
}

TEST_F(RequestFlowTest, LowerEpochsAreDroppedAndHigherOnesAreAFault) {
  Begin(Mode::kTree);
  router_.drafter.last().End(absl::UnavailableError("gone"));
  TokenRun old{.epoch = 1, .first_position = 3, .tokens = ByteIds("zzz")};
  router_.first.last().listener->OnRun(old);
  EXPECT_TRUE(sink_.tokens.empty());
  EXPECT_FALSE(router_.first.last().cancelled);
  router_.verifiers = 2;
  old.epoch = 9;
  router_.first.last().listener->OnRun(old);
  EXPECT_TRUE(router_.first.last().cancelled);
  router_.second.last().Send(script_, 0, size(), FinishReason::kMaxTokens);
  ExpectWholeScript(2);
}

TEST_F(RequestFlowTest, TokensThatCannotBeAreAFault) {
  const auto broken = [&](TokenRun run) {
    router_ = FakeRouter();
    sink_ = RecordingSink();
    Begin(Mode::kTree);
    run.epoch = 1;
    router_.drafter.last().listener->OnRun(std::move(run));
    EXPECT_TRUE(sink_.tokens.empty());
    EXPECT_TRUE(router_.drafter.last().cancelled);
    router_.first.last().Send(script_, 0, size(), FinishReason::kMaxTokens);
    ExpectWholeScript(1);
  };
  broken({.first_position = 3, .tokens = {TokenId{-1}}});
  broken({.first_position = 3, .tokens = {TokenId{1 << 20}}});
  broken({.first_position = 3, .tokens = {}});
  broken({.first_position = 2, .tokens = ByteIds("c")});
  broken({.first_position = -5, .tokens = ByteIds("c")});
  broken({.first_position = 3, .tokens = std::vector<TokenId>(script_.size() + 1, script_[0])});
}

TEST_F(RequestFlowTest, APathThatEndsWithoutAReasonIsAFault) {
  Begin(Mode::kTree);
  router_.drafter.last().Send(script_, 0, 3);
  router_.drafter.last().End(absl::OkStatus());
  router_.first.last().Send(script_, 3, size(), FinishReason::kMaxTokens);
  ExpectWholeScript(1);
}

TEST_F(RequestFlowTest, ALostVerifierIsReplacedByOneOfEqualFingerprint) {
  router_.verifiers = 2;
  Begin(Mode::kOff);
  router_.first.last().Send(script_, 0, 5);
  router_.first.last().End(absl::UnavailableError("socket closed"));
  ASSERT_EQ(router_.second.calls.size(), 1u);
  EXPECT_EQ(router_.second.last().start.epoch, 2);
  router_.second.last().Send(script_, 5, size(), FinishReason::kMaxTokens);
  ExpectWholeScript(1);
  EXPECT_THAT(router_.faults, ElementsAre("verifier-1"));
}

TEST_F(RequestFlowTest, TheLastVerifierLostIsUnavailable) {
  Begin(Mode::kTree);
  router_.drafter.last().Send(script_, 0, 5);
  router_.drafter.last().End(absl::UnavailableError("verifier gone"), "verifier", "LOADING");
  router_.first.last().End(absl::UnavailableError("connection refused"));
  EXPECT_EQ(sink_.failed, 1);
  EXPECT_EQ(sink_.error.status.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(sink_.error.reason, "NO_VERIFIER");
  EXPECT_THAT(std::string(sink_.error.status.message()), HasSubstr("connection refused"));
}

TEST_F(RequestFlowTest, ARequestThatTheVerifierRefusesGoesToTheClient) {
  Begin(Mode::kTree);
  router_.drafter.last().End(absl::InvalidArgumentError("prompt is too long"), "verifier", "BAD_REQUEST");
  EXPECT_EQ(sink_.failed, 1);
  EXPECT_EQ(sink_.error.status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(router_.first.calls.empty());
}

TEST_F(RequestFlowTest, ABadTreeIsTheDraftersFaultWhoeverReportsIt) {
  Begin(Mode::kTree);
  router_.drafter.last().End(absl::InvalidArgumentError("tree"), "verifier", "BAD_TREE");
  router_.first.last().Send(script_, 0, size(), FinishReason::kMaxTokens);
  ExpectWholeScript(1);
}

TEST_F(RequestFlowTest, AFullVerifierIsToldToTheClient) {
  Begin(Mode::kOff);
  router_.first.last().End(absl::ResourceExhaustedError("queue is full"), "verifier", "QUEUE_FULL");
  EXPECT_EQ(sink_.error.status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(router_.faults.empty());
}

TEST_F(RequestFlowTest, AStreamThatWasTakenOverGoesOnThereWithAHigherEpoch) {
  Begin(Mode::kOff);
  router_.first.last().Send(script_, 0, 5);
  router_.first.last().End(absl::ResourceExhaustedError("outbox is full"), "verifier", "SLOW_READER");
  ASSERT_EQ(router_.first.calls.size(), 2u);
  router_.first.last().Send(script_, 5, size(), FinishReason::kMaxTokens);
  ExpectWholeScript(1);
}

TEST_F(RequestFlowTest, AttemptsAreBounded) {
  Begin(Mode::kOff);
  while (sink_.failed == 0 && router_.first.calls.size() < 100) {
    router_.first.last().End(absl::AbortedError("taken over"), "verifier", "TAKEN_OVER");
  }
  EXPECT_EQ(sink_.failed, 1);
  EXPECT_EQ(router_.first.calls.size(), 8u);
}

TEST_F(RequestFlowTest, AStopStringInsideARunCutsItAndCancelsThePath) {
  Begin(Mode::kTree, {"ole r"});
  router_.drafter.last().Send(script_, 0, 7);
  EXPECT_EQ(sink_.text, "the wh") << "what may become the stop string is held back";
  router_.drafter.last().Send(script_, 7, 15);
  EXPECT_EQ(sink_.text, "the wh");
  EXPECT_EQ(sink_.tokens, std::vector<TokenId>(script_.begin(), script_.begin() + 11));
  EXPECT_EQ(sink_.answer.finish, FinishReason::kStopString);
  EXPECT_EQ(sink_.answer.stop_string, "ole r");
  EXPECT_TRUE(router_.drafter.last().cancelled);
  EXPECT_THAT(sink_.answer.accepted_lengths, ElementsAre(7, 4));
  router_.drafter.last().Send(script_, 15, size(), FinishReason::kMaxTokens);  // already under way
  EXPECT_EQ(sink_.finished, 1);
}

TEST_F(RequestFlowTest, AStopStringAcrossAFailoverIsFound) {
  Begin(Mode::kTree, {"ole r"});
  router_.drafter.last().Send(script_, 0, 8);
  router_.drafter.last().End(absl::UnavailableError("gone"));
  router_.first.last().Send(script_, 8, 15);
  EXPECT_EQ(sink_.text, "the wh");
  EXPECT_EQ(sink_.answer.finish, FinishReason::kStopString);
}

TEST_F(RequestFlowTest, TextThatOnlyBeganAStopStringIsGivenOutAtTheEnd) {
  Begin(Mode::kTree, {"answer!"});
  router_.drafter.last().Send(script_, 0, size(), FinishReason::kMaxTokens);
  ExpectWholeScript(0);
}

TEST_F(RequestFlowTest, ACharacterAcrossRunsIsGivenOutWhole) {
  script_ = ByteIds("x\xF0\x9F\x98\x80y\xE6\xBC");
  start_.sampling.max_tokens = size();
  Begin(Mode::kTree);
  router_.drafter.last().Send(script_, 0, 3);
  EXPECT_EQ(sink_.text, "x");
  router_.drafter.last().Send(script_, 3, 6);
  EXPECT_EQ(sink_.text, "x\xF0\x9F\x98\x80y");
  router_.drafter.last().Send(script_, 6, 8, FinishReason::kMaxTokens);
  EXPECT_EQ(sink_.text, "x\xF0\x9F\x98\x80y\xEF\xBF\xBD");
  EXPECT_EQ(sink_.tokens, script_);
}

TEST_F(RequestFlowTest, APromptThatEndsInsideACharacterIsCompletedByTheAnswer) {
  start_.prompt = ByteIds("a\xF0\x9F\x98");
  script_ = ByteIds("\x80!");
  start_.sampling.max_tokens = 2;
  Begin(Mode::kTree);
  router_.drafter.last().Send(script_, 0, 2, FinishReason::kMaxTokens);
  EXPECT_EQ(sink_.text, "\xF0\x9F\x98\x80!");
}

TEST_F(RequestFlowTest, TheStopIdIsTheLastTokenAndHasNoText) {
  start_.sampling.stop_ids = {TokenId{1}, script_[3]};
  start_.sampling.max_tokens = 100;
  Begin(Mode::kTree);
  router_.drafter.last().Send(script_, 0, 4, FinishReason::kStopId);
  EXPECT_EQ(sink_.text, "the");
  EXPECT_EQ(sink_.tokens.size(), 4u);
  EXPECT_EQ(sink_.answer.finish, FinishReason::kStopId);
}

TEST_F(RequestFlowTest, TheContextLimitIsToldApartFromTheClientsOwnLimit) {
  settings_.context_length = 3 + size();
  start_.sampling.max_tokens = size() + 50;
  Begin(Mode::kTree);
  EXPECT_EQ(router_.drafter.last().start.sampling.max_tokens, size());
  router_.drafter.last().Send(script_, 0, size(), FinishReason::kMaxTokens);
  EXPECT_EQ(sink_.answer.finish, FinishReason::kContextLimit);
}

TEST_F(RequestFlowTest, CancelStopsThePathAtOnceAndNothingFollows) {
  Begin(Mode::kTree);
  router_.drafter.last().Send(script_, 0, 4);
  flow_->Cancel(absl::CancelledError("client is gone"));
  EXPECT_TRUE(router_.drafter.last().cancelled);
  router_.drafter.last().Send(script_, 4, 9);
  router_.drafter.last().End(absl::CancelledError("cancelled"));
  flow_->Cancel(absl::CancelledError("again"));
  EXPECT_EQ(sink_.failed, 1);
  EXPECT_EQ(sink_.tokens.size(), 4u);
  EXPECT_TRUE(router_.first.calls.empty());
}

TEST_F(RequestFlowTest, TheDeadlineEndsTheRequestAndIsPassedOn) {
  const absl::Time now = absl::Now();
  start_.deadline = now + absl::Seconds(1);
  Begin(Mode::kTree);
  EXPECT_EQ(router_.drafter.last().start.deadline, start_.deadline);
  flow_->Tick(now + absl::Milliseconds(999));
  EXPECT_EQ(sink_.failed, 0);
  flow_->Tick(now + absl::Seconds(1));
  EXPECT_EQ(sink_.error.status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_TRUE(router_.drafter.last().cancelled);
}

TEST_F(RequestFlowTest, WithoutAVerifierTheRequestIsUnavailable) {
  router_.verifiers = 0;
  Begin(Mode::kTree);
  EXPECT_EQ(sink_.error.reason, "NO_VERIFIER");
  EXPECT_EQ(sink_.error.status.code(), absl::StatusCode::kUnavailable);
}

}  // namespace
}  // namespace arborist::coordinator
