#include "verifier/control_state.h"

#include <limits>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace arborist::verifier {
namespace {

using ::testing::HasSubstr;

constexpr int kVocabulary = 100;

std::vector<TokenId> Ids(std::initializer_list<int> ids) {
  std::vector<TokenId> tokens;
  for (const int id : ids) {
    tokens.push_back(TokenId{id});
  }
  return tokens;
}

OpenArgs Args() {
  OpenArgs args;
  args.prompt = Ids({5, 9, 5});
  args.max_tokens = 10;
  return args;
}

std::unique_ptr<ControlState> Create(const OpenArgs& args) {
  EXPECT_TRUE(CheckControls(args, kVocabulary).ok());
  return ControlState::Create(args, {}, kVocabulary, 20);
}

// token, bias, output count, occurred, forbidden
std::vector<std::vector<float>> History(const ControlState& state) {
  std::vector<std::vector<float>> all;
  for (const kernels::LogitEntry& entry : state.step().history) {
    all.push_back({static_cast<float>(Raw(entry.token)), entry.bias, static_cast<float>(entry.output_count),
                   static_cast<float>(entry.occurred), static_cast<float>(entry.forbidden)});
  }
  return all;
}

using Table = std::vector<std::vector<float>>;

TEST(ControlStateTest, ThereIsNoneWhereNothingActsAndNothingIsTold) {
  OpenArgs args = Args();
  EXPECT_EQ(Create(args), nullptr);
  args.stop_ids = Ids({3});
  args.controls.prompt_log_probs = true;  // of chunks, not of choices
  EXPECT_EQ(Create(args), nullptr);
  args.stop_ids.clear();
  args.controls.min_tokens = 4;  // nothing to hold back
  EXPECT_EQ(Create(args), nullptr);
}

TEST(ControlStateTest, RepetitionCountsThePromptAndTheOthersDoNot) {
  OpenArgs args = Args();
  args.output_so_far = Ids({7, 9});
  args.controls.repetition_penalty = 1.5f;
  auto state = Create(args);
  EXPECT_EQ(History(*state), (Table{{5, 0, 0, 1, 0}, {7, 0, 1, 1, 0}, {9, 0, 1, 1, 0}}));
  args.controls.repetition_penalty = 1;
  args.controls.presence_penalty = 0.5f;
  state = Create(args);
  EXPECT_EQ(History(*state), (Table{{7, 0, 1, 1, 0}, {9, 0, 1, 1, 0}}));
  EXPECT_TRUE(state->step().counts_nodes);
}

TEST(ControlStateTest, CommittedTokensCountLikeThoseOfOutputSoFar) {
  OpenArgs args = Args();
  args.controls.frequency_penalty = 0.5f;
  args.controls.logit_bias = {{TokenId{7}, 2}, {TokenId{50}, -1}};
  auto grown = Create(args);
  grown->Commit(Ids({7, 9}));
  grown->Commit(Ids({7}));
  args.output_so_far = Ids({7, 9, 7});
  const auto resumed = Create(args);
  EXPECT_EQ(History(*grown), (Table{{7, 2, 2, 1, 0}, {9, 0, 1, 1, 0}, {50, -1, 0, 0, 0}}));
  EXPECT_EQ(History(*grown), History(*resumed));
}

TEST(ControlStateTest, BiasAloneCountsNothing) {
  OpenArgs args = Args();
  args.controls.logit_bias = {{TokenId{9}, 2}};
  const auto state = Create(args);
  state->Commit(Ids({9, 8}));
  EXPECT_EQ(History(*state), (Table{{9, 2, 0, 0, 0}}));
  EXPECT_FALSE(state->step().counts_nodes);
}

TEST(ControlStateTest, StopIdsAreHeldBackUpToAPosition) {
  OpenArgs args = Args();
  args.stop_ids = Ids({8, 3, 8});
  args.controls.min_tokens = 4;
  const auto state = Create(args);
  EXPECT_EQ(state->step().stops_from, 7);
  EXPECT_TRUE(std::ranges::equal(state->step().stop_ids, Ids({3, 8})));
}

TEST(ControlStateTest, StopIdsAreHeldBackForGoodWhereMinTokensIsTheLargestInteger) {
  OpenArgs args = Args();
  args.stop_ids = Ids({8});
  args.max_tokens = args.controls.min_tokens = std::numeric_limits<int32_t>::max();
  EXPECT_EQ(Create(args)->step().stops_from, std::numeric_limits<int32_t>::max());
}

struct Counting : NodeMasks {
  explicit Counting(std::vector<TokenId>& seen) : seen(seen) {}
  void Commit(std::span<const TokenId> tokens) override {
    seen.insert(seen.end(), tokens.begin(), tokens.end());
  }
  void OfTree(std::span<const TokenId>, std::span<const int32_t>, std::span<const uint32_t*>) override {}
  std::vector<TokenId>& seen;
};

TEST(ControlStateTest, MasksAreToldAllOutputInOrder) {
  std::vector<TokenId> seen;
  std::vector<std::unique_ptr<NodeMasks>> masks;
  masks.push_back(std::make_unique<Counting>(seen));
  OpenArgs args = Args();
  args.output_so_far = Ids({1, 2});
  args.controls.allowed_token_ids = Ids({1, 2, 3});
  const auto state = ControlState::Create(args, std::move(masks), kVocabulary, 20);
  EXPECT_EQ(state->step().masks.size(), 2u);
  state->Commit(Ids({3}));
  EXPECT_EQ(seen, Ids({1, 2, 3}));
}

TEST(CheckControlsTest, NamesTheFieldAtFault) {
  const auto message = [](const std::function<void(OpenArgs&)>& spoil) {
    OpenArgs args = Args();
    spoil(args);
    const absl::Status status = CheckControls(args, kVocabulary);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    return std::string(status.message());
  };
  EXPECT_THAT(message([](OpenArgs& a) { a.controls.repetition_penalty = 0; }),
              HasSubstr("repetition_penalty=0"));
  EXPECT_THAT(
      message([](OpenArgs& a) { a.controls.presence_penalty = std::numeric_limits<float>::infinity(); }),
      HasSubstr("presence_penalty=inf"));
  EXPECT_THAT(message([](OpenArgs& a) {
                a.controls.logit_bias = {{TokenId{100}, 1}};
              }),
              HasSubstr("logit_bias[0]=100"));
  EXPECT_THAT(message([](OpenArgs& a) {
                a.controls.logit_bias = {{TokenId{1}, 1}, {TokenId{1}, 1}};
              }),
              HasSubstr("distinct"));
  EXPECT_THAT(message([](OpenArgs& a) { a.controls.logit_bias.resize(1025); }), HasSubstr("at most 1024"));
  EXPECT_THAT(message([](OpenArgs& a) { a.controls.allowed_token_ids = Ids({-1}); }),
              HasSubstr("allowed_token_ids[0]=-1"));
  EXPECT_THAT(message([](OpenArgs& a) { a.controls.min_tokens = 11; }), HasSubstr("min_tokens=11"));
  EXPECT_THAT(message([](OpenArgs& a) { a.controls.top_log_probs = 21; }), HasSubstr("top_log_probs=21"));
  EXPECT_THAT(message([](OpenArgs& a) { a.stop_ids.resize(129); }), HasSubstr("stop_ids count=129"));
  EXPECT_THAT(message([](OpenArgs& a) {
                a.controls.min_tokens = 1;
                a.stop_ids = Ids({4});
                a.controls.allowed_token_ids = Ids({4});
              }),
              HasSubstr("nothing but stop ids"));
  const auto stop_at_everything = [](OpenArgs& args) {
    for (int id = 0; id < kVocabulary; ++id) {
      args.stop_ids.push_back(TokenId{id});
    }
  };
  EXPECT_THAT(message([&](OpenArgs& a) {
                a.controls.min_tokens = 1;
                stop_at_everything(a);
              }),
              HasSubstr("min_tokens=1, expected 0, since every id of the vocabulary is a stop id"));
  OpenArgs args = Args();
  stop_at_everything(args);
  EXPECT_TRUE(CheckControls(args, kVocabulary).ok()) << "nothing is held back";
  args.controls.min_tokens = 1;
  args.stop_ids.front() = args.stop_ids.back();
  EXPECT_TRUE(CheckControls(args, kVocabulary).ok()) << "one is left";
}

}  // namespace
}  // namespace arborist::verifier
