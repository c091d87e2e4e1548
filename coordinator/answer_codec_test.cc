#include "coordinator/answer_codec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/rpc/status_bridge.h"

namespace arborist::coordinator {
namespace {

using ::testing::ElementsAre;

v1::GenerateResponse Chunk(uint32_t sample, int first, int count) {
  AnswerChunk chunk;
  for (int i = first; i < first + count; ++i) {
    chunk.text += static_cast<char>('a' + i);
    chunk.tokens.push_back(TokenId{i});
    chunk.log_probs.push_back(-static_cast<float>(i));
    chunk.top_log_probs.push_back({{TokenId{i}, -1}, {TokenId{i + 1}, -2}});
  }
  return ChunkMessage(sample, std::move(chunk));
}

TEST(AnswerCodecTest, ChunksOfOneAnswerThatAreJoinedStayAligned) {
  v1::GenerateResponse waiting = ChunkMessage(1, {.prompt_log_probs = {-7, -8}});
  for (const int first : {0, 2, 3}) {
    v1::GenerateResponse next = Chunk(1, first, first == 0 ? 2 : 1);
    EXPECT_TRUE(MergeChunks(waiting, next));
  }
  const v1::GenerateChunk& chunk = waiting.chunk();
  EXPECT_EQ(chunk.text(), "abcd");
  EXPECT_THAT(chunk.token_ids(), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(chunk.log_probs(), ElementsAre(0, -1, -2, -3));
  EXPECT_THAT(chunk.prompt_log_probs(), ElementsAre(-7, -8));
  ASSERT_EQ(chunk.top_log_probs_size(), 4);
  for (int i = 0; i < 4; ++i) {
    ASSERT_EQ(chunk.top_log_probs(i).tokens_size(), 2);
    EXPECT_EQ(chunk.top_log_probs(i).tokens(0).token_id(), i);
  }
  EXPECT_FALSE(chunk.is_prompt());
}

TEST(AnswerCodecTest, AnotherAnswersChunksAndEndsStayApart) {
  v1::GenerateResponse waiting = Chunk(0, 0, 1);
  v1::GenerateResponse other = Chunk(1, 0, 1);
  EXPECT_FALSE(MergeChunks(waiting, other));
  v1::GenerateResponse end = FinalMessage(0, {}, {}, 0);
  EXPECT_FALSE(MergeChunks(waiting, end));
  EXPECT_FALSE(MergeChunks(end, waiting));
  EXPECT_THAT(waiting.chunk().token_ids(), ElementsAre(0));
}

TEST(AnswerCodecTest, AnEndTellsWhatTheAnswerTook) {
  Answer answer;
  answer.finish = FinishReason::kConstraint;
  answer.completion_tokens = 9;
  answer.verified_nodes = 30;
  answer.cut_nodes = 2;
  answer.accepted_nodes = 5;
  const v1::GenerateFinal final = FinalMessage(3, {"id", "print", 7, 11}, answer, 1.5).final();
  EXPECT_EQ(final.finish_reason(), v1::FINISH_REASON_CONSTRAINT);
  EXPECT_EQ(final.usage().prompt_tokens(), 11);
  EXPECT_EQ(final.usage().completion_tokens(), 9);
  EXPECT_EQ(final.usage().cached_tokens(), 0);
  EXPECT_EQ(final.usage().drafted_tokens(), 32);
  EXPECT_EQ(final.usage().verified_tokens(), 30);
  EXPECT_EQ(final.usage().accepted_tokens(), 5);
  EXPECT_EQ(final.seed(), 7u);
  EXPECT_EQ(final.seconds().total(), 1.5);
}

TEST(AnswerCodecTest, AnErrorIsCompleteAndCallsFieldsAsTheClientDoes) {
  const absl::Status field =
      StatusFor({WithOrigin(FieldError("sequence.sampling.json_schema", "/type: 7", "a word"), "verifier"),
                 "verifier", ""});
  EXPECT_EQ(field.message(), "json_schema=/type: 7, expected a word");
  EXPECT_EQ(FieldViolationsOf(field)[0].field, "json_schema");
  EXPECT_EQ(FieldViolationsOf(StatusFor({FieldError("sequence.priority", "3", "less"), "", ""}))[0].field,
            "priority");
  const absl::Status lost = StatusFor({absl::UnavailableError("gone"), "coordinator", "NO_VERIFIER"});
  EXPECT_EQ(ReasonOf(lost), "NO_VERIFIER");
  EXPECT_EQ(OriginOf(lost), "coordinator");
  EXPECT_TRUE(RetryDelayOf(lost).has_value());
}

}  // namespace
}  // namespace arborist::coordinator
