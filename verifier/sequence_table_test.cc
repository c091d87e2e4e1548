#include "verifier/sequence_table.h"

#include <gtest/gtest.h>

#include <memory>

namespace arborist::verifier {
namespace {

std::unique_ptr<Sequence> MakeSequence(const std::string& request_id, int64_t epoch, uint32_t sample = 0) {
  auto sequence = std::make_unique<Sequence>();
  sequence->args.key = {request_id, sample};
  sequence->args.epoch = epoch;
  sequence->tokens = {TokenId{1}, TokenId{2}, TokenId{3}};
  return sequence;
}

TEST(SequenceTableTest, AHigherEpochEndsTheOlderOneAndInheritsItsPages) {
  PagePool pool(4);
  SequenceTable table(4);
  Sequence* older = *table.Insert(MakeSequence("a", 1));
  older->pages = pool.NewSequence();
  ASSERT_TRUE(older->pages.Resize(3));
  older->computed = 2;
  Sequence* newer = *table.Insert(MakeSequence("a", 2));
  ASSERT_TRUE(older->end.has_value());
  EXPECT_EQ(older->end->code(), absl::StatusCode::kAborted);
  table.Remove(older->handle);
  EXPECT_EQ(newer->inherited.pages.count(), 3);
  EXPECT_EQ(newer->inherited.computed, 2);
  EXPECT_EQ(newer->inherited.tokens.size(), 3u);
}

TEST(SequenceTableTest, AChainOfTakeoversPassesThePagesOn) {
  PagePool pool(4);
  SequenceTable table(4);
  Sequence* first = *table.Insert(MakeSequence("a", 1));
  first->pages = pool.NewSequence();
  ASSERT_TRUE(first->pages.Resize(2));
  Sequence* second = *table.Insert(MakeSequence("a", 2));
  Sequence* third = *table.Insert(MakeSequence("a", 3));
  EXPECT_TRUE(second->end.has_value());
  table.Remove(first->handle);
  table.Remove(second->handle);
  EXPECT_EQ(third->inherited.pages.count(), 2);
  table.Remove(third->handle);
  EXPECT_EQ(pool.free_pages(), 4);
}

TEST(SequenceTableTest, TheSameAndALowerEpochAreRefused) {
  SequenceTable table(4);
  ASSERT_TRUE(table.Insert(MakeSequence("a", 5)).ok());
  for (const int64_t epoch : {5, 4}) {
    const absl::Status refused = table.Insert(MakeSequence("a", epoch)).status();
    EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_NE(refused.message().find("expected more than the open epoch 5"), absl::string_view::npos);
  }
}

TEST(SequenceTableTest, SamplesOfARequestAreDifferentSequences) {
  SequenceTable table(4);
  ASSERT_TRUE(table.Insert(MakeSequence("a", 1, 0)).ok());
  EXPECT_TRUE(table.Insert(MakeSequence("a", 1, 1)).ok());
}

TEST(SequenceTableTest, AClosedKeyIsFreeAgain) {
  SequenceTable table(4);
  Sequence* sequence = *table.Insert(MakeSequence("a", 5));
  const SequenceHandle handle = sequence->handle;
  table.Remove(handle);
  EXPECT_EQ(table.Find(handle), nullptr);
  EXPECT_TRUE(table.Insert(MakeSequence("a", 1)).ok());
}

TEST(SequenceTableTest, AFullQueueRefusesButNotATakeover) {
  SequenceTable table(1);
  ASSERT_TRUE(table.Insert(MakeSequence("a", 1)).ok());
  EXPECT_EQ(table.Insert(MakeSequence("b", 1)).status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(table.Insert(MakeSequence("a", 2)).ok());
}

TEST(SequenceTableTest, AHeirKeepsThePlaceInTheQueue) {
  SequenceTable table(4);
  auto first = MakeSequence("a", 1);
  first->opened = std::chrono::steady_clock::time_point(std::chrono::seconds(5));
  const auto opened = first->opened;
  ASSERT_TRUE(table.Insert(std::move(first)).ok());
  EXPECT_EQ((*table.Insert(MakeSequence("a", 2)))->opened, opened);
}

class SharedPrefixTest : public testing::Test {
 protected:
  Sequence* Add(const std::string& request, uint32_t sample, int tokens, Phase phase, int computed) {
    auto sequence = MakeSequence(request, 1, sample);
    sequence->tokens.assign(static_cast<size_t>(tokens), TokenId{1});
    sequence->phase = phase;
    sequence->computed = computed;
    return *table_.Insert(std::move(sequence));
  }

  SequenceTable table_{16};
};

TEST_F(SharedPrefixTest, ThereIsNoneOfASequenceThatWaitsOrOfAnotherRequest) {
  const Sequence* sequence = Add("b", 1, 200, Phase::kNew, 0);
  Add("b", 0, 200, Phase::kQueued, 0);
  Add("a", 0, 200, Phase::kReady, 199);
  Add("b ", 0, 200, Phase::kReady, 199);
  const SharedPrefix shared = table_.FindSharedPrefix(*sequence);
  EXPECT_EQ(shared.from, nullptr);
  EXPECT_EQ(shared.pages, 0);
  EXPECT_FALSE(shared.grows);
}

TEST_F(SharedPrefixTest, ItGrowsWhileASampleThatHasMoreIsPrefilled) {
  const Sequence* sequence = Add("b", 7, 200, Phase::kNew, 0);
  Sequence* other = Add("b", 3, 200, Phase::kPrefill, 0);
  EXPECT_TRUE(table_.FindSharedPrefix(*sequence).grows);
  other->computed = 191;
  SharedPrefix shared = table_.FindSharedPrefix(*sequence);
  EXPECT_EQ(shared.pages, 2);
  EXPECT_TRUE(shared.grows);
  other->computed = 192;  // what is left of its prompt is no whole page
  shared = table_.FindSharedPrefix(*sequence);
  EXPECT_EQ(shared.from, other);
  EXPECT_EQ(shared.pages, 3);
  EXPECT_FALSE(shared.grows);
}

TEST_F(SharedPrefixTest, ItIsTheLongestAndEndsBeforeARoot) {
  const Sequence* sequence = Add("b", 7, 193, Phase::kNew, 0);
  const Sequence* shorter = Add("b", 0, 150, Phase::kReady, 149);
  EXPECT_EQ(table_.FindSharedPrefix(*sequence).from, shorter);
  EXPECT_EQ(table_.FindSharedPrefix(*sequence).pages, 2);
  Sequence* longer = Add("b", 1, 300, Phase::kReady, 299);
  EXPECT_EQ(table_.FindSharedPrefix(*sequence).from, longer);
  EXPECT_EQ(table_.FindSharedPrefix(*sequence).pages, 3);
  longer->tokens[191] = TokenId{2};
  EXPECT_EQ(table_.FindSharedPrefix(*sequence).pages, 2);
  EXPECT_EQ(table_.FindSharedPrefix(*Add("b", 8, 128, Phase::kNew, 0)).pages, 1);
}

}  // namespace
}  // namespace arborist::verifier
