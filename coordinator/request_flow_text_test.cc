#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "coordinator/testing/flow_fixture.h"

namespace arborist::coordinator {
namespace {

using testing::ByteIds;
using ::testing::ElementsAre;
using testing::RequestFlowTest;

class RequestFlowTextTest : public RequestFlowTest {};

TEST_F(RequestFlowTextTest, AStopStringInsideARunCutsItAndCancelsThePath) {
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

TEST_F(RequestFlowTextTest, AStopStringAcrossAFailoverIsFound) {
  Begin(Mode::kTree, {"ole r"});
  router_.drafter.last().Send(script_, 0, 8);
  router_.drafter.last().End(absl::UnavailableError("gone"));
  router_.first.last().Send(script_, 8, 15);
  EXPECT_EQ(sink_.text, "the wh");
  EXPECT_EQ(sink_.answer.finish, FinishReason::kStopString);
}

TEST_F(RequestFlowTextTest, TextThatOnlyBeganAStopStringIsGivenOutAtTheEnd) {
  Begin(Mode::kTree, {"answer!"});
  router_.drafter.last().Send(script_, 0, size(), FinishReason::kMaxTokens);
  ExpectWholeScript(0);
}

TEST_F(RequestFlowTextTest, ACharacterAcrossRunsIsGivenOutWhole) {
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

TEST_F(RequestFlowTextTest, APromptThatEndsInsideACharacterIsCompletedByTheAnswer) {
  start_.prompt = ByteIds("a\xF0\x9F\x98");
  script_ = ByteIds("\x80!");
  start_.sampling.max_tokens = 2;
  Begin(Mode::kTree);
  router_.drafter.last().Send(script_, 0, 2, FinishReason::kMaxTokens);
  EXPECT_EQ(sink_.text, "\xF0\x9F\x98\x80!");
}

TEST_F(RequestFlowTextTest, TheStopIdIsTheLastTokenAndHasNoText) {
  start_.sampling.stop_ids = {TokenId{1}, script_[3]};
  start_.sampling.max_tokens = 100;
  Begin(Mode::kTree);
  router_.drafter.last().Send(script_, 0, 4, FinishReason::kStopId);
  EXPECT_EQ(sink_.text, "the");
  EXPECT_EQ(sink_.tokens.size(), 4u);
  EXPECT_EQ(sink_.answer.finish, FinishReason::kStopId);
}

TEST_F(RequestFlowTextTest, TokensAfterAStopIdAreAFaultAndNeverText) {
  start_.sampling.stop_ids = {script_[3]};
  start_.sampling.max_tokens = 100;
  Begin(Mode::kTree);
  router_.drafter.last().Send(script_, 0, 7);  // the stop id inside the run
  EXPECT_TRUE(sink_.tokens.empty());
  EXPECT_TRUE(router_.drafter.last().cancelled);
  router_.first.last().Send(script_, 0, 4);  // and last in it, but the path goes on
  router_.first.last().Send(script_, 4, 7);
  EXPECT_EQ(sink_.text, "the");
  EXPECT_EQ(sink_.answer.finish, FinishReason::kStopId);
  EXPECT_EQ(sink_.finished, 1);
}

TEST_F(RequestFlowTextTest, AStopIdBeforeMinTokensIsAFault) {
  start_.sampling.stop_ids = {script_[3]};
  start_.sampling.min_tokens = 4;
  start_.sampling.max_tokens = 100;
  Begin(Mode::kTree);
  router_.drafter.last().Send(script_, 0, 4, FinishReason::kStopId);
  EXPECT_EQ(sink_.finished, 0);
  EXPECT_TRUE(router_.drafter.last().cancelled);
}

TEST_F(RequestFlowTextTest, StopStringsBeginAfterMinTokens) {
  script_ = ByteIds("abcabcabc!");
  start_.sampling.max_tokens = size();
  for (const auto& [min_tokens, text] : std::vector<std::pair<int, std::string>>{
           {0, "a"}, {1, "a"}, {2, "abca"}, {3, "abca"}, {4, "abca"}, {5, "abcabca"}, {8, "abcabcabc!"}}) {
    sink_ = testing::RecordingSink();
    start_.sampling.min_tokens = min_tokens;
    Begin(Mode::kTree, {"bc"});
    router_.drafter.last().Send(script_, 0, size(), FinishReason::kMaxTokens);
    EXPECT_EQ(sink_.text, text) << min_tokens;
  }
}

TEST_F(RequestFlowTextTest, MinTokensAreNeverMoreThanTheContextHasRoomFor) {
  settings_.context_length = 3 + 5;
  start_.sampling.min_tokens = 9;
  Begin(Mode::kTree);
  EXPECT_EQ(router_.drafter.last().start.sampling.max_tokens, 5);
  EXPECT_EQ(router_.drafter.last().start.sampling.min_tokens, 5);
}

TEST_F(RequestFlowTextTest, AStopStringAcrossManyRunsIsHeldBackUntilItIsCertain) {
  script_ = ByteIds("say STOSTOP now");
  start_.sampling.max_tokens = size();
  Begin(Mode::kTree, {"STOP"});
  std::string shown;
  for (int i = 0; i < size() && sink_.finished == 0; ++i) {
    router_.drafter.last().Send(script_, i, i + 1, FinishReason::kNone, /*verified_nodes=*/0);
    EXPECT_EQ(std::string("say STO").rfind(sink_.text, 0), 0u) << sink_.text;
  }
  EXPECT_EQ(sink_.text, "say STO");
  EXPECT_EQ(sink_.tokens.size(), 11u);
  EXPECT_EQ(sink_.answer.stop_string, "STOP");
}

TEST_F(RequestFlowTextTest, AConstraintMayEndTheAnswerWithOrWithoutATokenMore) {
  start_.sampling.constraint_kind = ConstraintKind::kRegex;
  start_.sampling.constraint = "the w";
  Begin(Mode::kTree);
  router_.drafter.last().Send(script_, 0, 5, FinishReason::kConstraint);
  EXPECT_EQ(sink_.text, "the w");
  EXPECT_EQ(sink_.answer.finish, FinishReason::kConstraint);
  sink_ = testing::RecordingSink();
  Begin(Mode::kTree);
  router_.drafter.last().Send(script_, 0, 5);
  router_.drafter.last().End(absl::UnavailableError("gone before it could say so"));
  router_.first.last().Send(script_, 5, 5, FinishReason::kConstraint);
  EXPECT_EQ(sink_.text, "the w");
  EXPECT_EQ(sink_.answer.finish, FinishReason::kConstraint);
  EXPECT_EQ(sink_.answer.completion_tokens, 5);
}

TEST_F(RequestFlowTextTest, TheContextLimitInsideARunEndsTheAnswerThere) {
  settings_.context_length = 3 + 7;
  start_.sampling.max_tokens = 50;
  Begin(Mode::kTree);
  router_.drafter.last().Send(script_, 0, 4);
  router_.drafter.last().Send(script_, 4, 7, FinishReason::kContextLimit);
  EXPECT_EQ(sink_.text, "the who");
  EXPECT_EQ(sink_.answer.finish, FinishReason::kContextLimit);
}

TEST_F(RequestFlowTextTest, WithAnEchoAllTextIsThatOfAllTokens) {
  for (const std::string& answer : {std::string("\x80!"), std::string("x!")}) {
    for (const bool echo : {false, true}) {
      sink_ = testing::RecordingSink();
      echo_ = echo;
      start_.prompt = ByteIds("a\xF0\x9F\x98");
      script_ = ByteIds(answer);
      start_.sampling.max_tokens = 2;
      Begin(Mode::kTree);
      router_.drafter.last().Send(script_, 0, 2, FinishReason::kMaxTokens);
      if (echo) {
        std::vector<TokenId> all = start_.prompt;
        all.insert(all.end(), script_.begin(), script_.end());
        EXPECT_EQ("a" + sink_.text, testing::SharedTokenizer().Decode(all, true));
      } else {
        EXPECT_EQ(sink_.text, answer[0] == 'x' ? "x!" : "\xF0\x9F\x98\x80!");
      }
    }
  }
}

}  // namespace
}  // namespace arborist::coordinator
