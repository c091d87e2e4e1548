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

}  // namespace
}  // namespace arborist::coordinator
