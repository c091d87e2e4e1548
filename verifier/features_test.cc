#include <gtest/gtest.h>

#include <map>

#include "verifier/testing/drive.h"
#include "verifier/testing/test_verifier.h"

namespace arborist::verifier {
namespace {

constexpr int kVocabulary = 64;
// Wide rows, so that a window is more than one chunk of 128 KiB: 64 rows each.
constexpr int kHidden = 1024;

TestVerifierOptions Options(int hidden) {
  TestVerifierOptions options;
  options.fake.hidden = hidden;
  options.projection = true;
  return options;
}

OpenArgs Request(int prompt_tokens, int max_tokens) {
  OpenArgs args = MakeOpen("r", RandomTokens(prompt_tokens, kVocabulary, 4), max_tokens, 16);
  args.projection_hash = kTestProjectionHash;
  return args;
}

using Rows = std::map<int32_t, std::vector<uint16_t>>;

// Attach with a window; what came by OnFeatures, by position.
Rows Attach(Verifier& verifier, OpenArgs args, int32_t expected_rows, int hidden) {
  RecordingSink sink;
  const auto handle = verifier.Open(std::move(args), &sink);
  Rows rows;
  int32_t before = 1 << 30;
  for (const auto& chunk : sink.WaitFeatures(expected_rows)) {
    EXPECT_LE(chunk.features.size() * 2, 128u << 10);
    EXPECT_EQ(chunk.features.size(), static_cast<size_t>(chunk.rows * hidden));
    EXPECT_LT(chunk.first_position, before) << "newest first";
    before = chunk.first_position;
    for (int32_t row = 0; row < chunk.rows; ++row) {
      const auto begin = chunk.features.begin() + static_cast<ptrdiff_t>(row) * hidden;
      rows[chunk.first_position + row].assign(begin, begin + hidden);
    }
  }
  verifier.Finish(*handle);
  EXPECT_TRUE(sink.WaitClosed().ok());
  return rows;
}

TEST(FeaturesTest, AttachBringsTheNewestWindowInChunks) {
  TestVerifier verifier(Options(kHidden));
  OpenArgs args = Request(80, 10);
  const Rows all = Attach(*verifier, args, 79, kHidden);
  ASSERT_EQ(all.size(), 79u);
  EXPECT_EQ(all.begin()->first, 0);
  args.feature_window = 70;
  const Rows window = Attach(*verifier, args, 70, kHidden);
  ASSERT_EQ(window.size(), 70u);
  EXPECT_EQ(window.begin()->first, 9);
  for (const auto& [position, row] : window) {
    EXPECT_EQ(row, all.at(position));
  }
}

TEST(FeaturesTest, RoundsBringRootToLastAcceptedAndEqualThoseOfAPrefill) {
  TestVerifier verifier(Options(8));
  OpenArgs args = Request(50, 80);
  const Decoded plain = DecodePlain(*verifier, args);
  std::vector<TokenId> text = args.prompt;
  text.insert(text.end(), plain.tokens.begin(), plain.tokens.end());
  const Decoded trees = DecodeTrees(*verifier, args, ReplayDrafter(text, kVocabulary, 16, 8));
  EXPECT_GT(trees.compactions, 0);

  OpenArgs whole = args;
  whole.prompt = text;
  const Rows prefilled = Attach(*verifier, whole, 129, 8);
  for (int32_t position = 49; position < 129; ++position) {
    ASSERT_TRUE(plain.features.contains(position)) << position;
    ASSERT_TRUE(trees.features.contains(position)) << position;
    EXPECT_EQ(plain.features.at(position), prefilled.at(position)) << position;
    EXPECT_EQ(trees.features.at(position), prefilled.at(position)) << position;
  }
  EXPECT_EQ(plain.features.count(48), 0u) << "before the root they come on attach";
}

TEST(FeaturesTest, ATakenOverSequenceStillHasItsFeatures) {
  TestVerifier verifier(Options(8));
  OpenArgs args = Request(50, 40);
  args.projection_hash.clear();  // decoded plainly, for nobody's drafter
  const Decoded plain = DecodePlain(*verifier, args);
  RecordingSink old;
  const auto handle = verifier->Open(args, &old);
  ASSERT_TRUE(verifier->SubmitDecode(*handle, 1, 20).ok());
  for (int i = 0; i < 20; ++i) {
    const auto committed = old.TakeCommitted();
    ASSERT_TRUE(committed.has_value());
    EXPECT_EQ(committed->feature_rows, 0);
  }
  args.epoch = 2;
  args.output_so_far.assign(plain.tokens.begin(), plain.tokens.begin() + 20);
  args.projection_hash = kTestProjectionHash;
  const Rows inherited = Attach(*verifier, args, 69, 8);
  EXPECT_EQ(old.WaitClosed().code(), absl::StatusCode::kAborted);
  args.epoch = 3;
  EXPECT_EQ(inherited, Attach(*verifier, args, 69, 8));
}

TEST(FeaturesTest, AnotherHashIsAMismatch) {
  TestVerifier verifier(Options(8));
  OpenArgs args = Request(5, 5);
  args.projection_hash = "another";
  RecordingSink sink;
  const absl::Status status = verifier->Open(args, &sink).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_NE(status.message().find("PROJECTION_MISMATCH"), absl::string_view::npos);
}

}  // namespace
}  // namespace arborist::verifier
