#include "drafter/late_features.h"

#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "absl/status/statusor.h"

namespace arborist::drafter {
namespace {

FeatureRows Rows(int32_t first, int32_t rows) {
  FeatureRows features{.first_position = first, .rows = rows, .values = {}};
  features.values.resize(static_cast<size_t>(rows) * 4);
  return features;
}

class NotingContext final : public DraftContext {
 public:
  absl::Status AppendTokens(int32_t, std::span<const TokenId>) override { return absl::OkStatus(); }
  absl::Status AppendFeatures(int32_t first, int32_t rows, std::span<const BFloat16> values) override {
    EXPECT_EQ(values.size(), static_cast<size_t>(rows) * 4);
    pieces.emplace_back(first, rows);
    return absl::OkStatus();
  }
  bool Ready() const override { return true; }
  absl::StatusOr<TokenTree> Propose(const ProposeArgs&) override { return absl::InternalError("unused"); }

  std::vector<std::pair<int32_t, int32_t>> pieces;
};

using Pieces = std::vector<std::pair<int32_t, int32_t>>;

TEST(LateFeaturesTest, NeighboursAreJoinedAndGivenOnce) {
  LateFeatures late(100);
  late.Keep(Rows(10, 5));
  late.Keep(Rows(15, 1));
  late.Keep(Rows(16, 2));
  late.Keep(Rows(0, 10));
  NotingContext context;
  ASSERT_TRUE(late.GiveTo(context).ok());
  EXPECT_EQ(context.pieces, (Pieces{{10, 8}, {0, 10}}));
  ASSERT_TRUE(late.GiveTo(context).ok());
  EXPECT_EQ(context.pieces.size(), 2u);
}

TEST(LateFeaturesTest, WhatHasLeftTheWindowIsDropped) {
  LateFeatures late(8);
  late.Keep(Rows(0, 4));
  for (int position = 10; position < 1000; ++position) {
    late.Keep(Rows(position, 1));
    EXPECT_LE(late.rows(), 4 + 16);
  }
  NotingContext context;
  ASSERT_TRUE(late.GiveTo(context).ok());
  ASSERT_EQ(context.pieces.size(), 1u);
  EXPECT_LE(context.pieces[0].first, 1000 - 8);
  EXPECT_EQ(context.pieces[0].first + context.pieces[0].second, 1000);
}

TEST(LateFeaturesTest, AProposerWithoutAWindowGetsNone) {
  LateFeatures late(0);
  late.Keep(Rows(0, 4));
  EXPECT_EQ(late.rows(), 0);
}

}  // namespace
}  // namespace arborist::drafter
