#include "verifier/verify_codec.h"

#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "common/rpc/protocol.h"
#include "common/rpc/status_bridge.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace arborist::verifier {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

const VerifierInfo kInfo = {.fingerprint = "f1",
                            .projection_hash = "p1",
                            .model_name = "fake",
                            .vocabulary_size = 100,
                            .hidden_size = 4,
                            .context_length = 16,
                            .max_tree_nodes = 31,
                            .max_sequences = 4};

v1::Open GoodOpen() {
  v1::Open open;
  v1::Sequence& sequence = *open.mutable_sequence();
  sequence.set_protocol_version(kProtocolVersion);
  sequence.set_request_id("r1");
  sequence.set_epoch(1);
  sequence.add_prompt(5);
  sequence.mutable_sampling()->set_max_tokens(4);
  sequence.set_fingerprint("f1");
  return open;
}

struct BadOpen {
  std::string text;
  absl::StatusCode code;
  std::string reason;
  std::function<void(v1::Open&)> spoil;
};

class BadOpenTest : public ::testing::TestWithParam<BadOpen> {};

TEST_P(BadOpenTest, IsRefusedWithFieldValueAndExpectation) {
  ASSERT_TRUE(DecodeOpen(GoodOpen(), kInfo).ok());
  v1::Open open = GoodOpen();
  GetParam().spoil(open);
  const absl::Status status = DecodeOpen(open, kInfo).status();
  EXPECT_EQ(status.code(), GetParam().code) << status;
  EXPECT_EQ(ReasonOf(status), GetParam().reason) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr(GetParam().text));
}

v1::Sequence& Seq(v1::Open& open) { return *open.mutable_sequence(); }
v1::Sampling& Sam(v1::Open& open) { return *open.mutable_sequence()->mutable_sampling(); }

constexpr auto kBad = absl::StatusCode::kInvalidArgument;
constexpr auto kPrecondition = absl::StatusCode::kFailedPrecondition;

INSTANTIATE_TEST_SUITE_P(
    Table, BadOpenTest,
    ::testing::Values(
        BadOpen{"sequence=unset", kBad, "BAD_REQUEST", [](auto& o) { o.clear_sequence(); }},
        BadOpen{"protocol_version=0, expected 1", kPrecondition, "PROTOCOL_VERSION_MISMATCH",
                [](auto& o) { Seq(o).clear_protocol_version(); }},
        BadOpen{"fingerprint=f2, expected f1", kPrecondition, "FINGERPRINT_MISMATCH",
                [](auto& o) { Seq(o).set_fingerprint("f2"); }},
        BadOpen{"fingerprint=, expected f1", kPrecondition, "FINGERPRINT_MISMATCH",
                [](auto& o) { Seq(o).clear_fingerprint(); }},
        BadOpen{"projection_hash=p2, expected p1", kPrecondition, "PROJECTION_MISMATCH",
                [](auto& o) { o.set_projection_hash("p2"); }},
        BadOpen{"drafter_projection_hash=p2, expected p1", kPrecondition, "PROJECTION_MISMATCH",
                [](auto& o) { o.set_drafter_projection_hash("p2"); }},
        BadOpen{"request_id=(0 bytes)", kBad, "BAD_REQUEST", [](auto& o) { Seq(o).clear_request_id(); }},
        BadOpen{"request_id=(129 bytes)", kBad, "BAD_REQUEST",
                [](auto& o) { Seq(o).set_request_id(std::string(129, 'a')); }},
        BadOpen{"request_id=(3 bytes)", kBad, "BAD_REQUEST", [](auto& o) { Seq(o).set_request_id("a\nb"); }},
        BadOpen{"sample_index=1024", kBad, "BAD_REQUEST", [](auto& o) { Seq(o).set_sample_index(1024); }},
        BadOpen{"epoch=0", kBad, "BAD_REQUEST", [](auto& o) { Seq(o).set_epoch(0); }},
        BadOpen{"prompt=(0 tokens), expected at least 1", kBad, "BAD_REQUEST",
                [](auto& o) { Seq(o).clear_prompt(); }},
        BadOpen{"prompt[0]=100, expected an id in [0, 100)", kBad, "BAD_REQUEST",
                [](auto& o) { Seq(o).set_prompt(0, 100); }},
        BadOpen{"prompt[0]=-1", kBad, "BAD_REQUEST", [](auto& o) { Seq(o).set_prompt(0, -1); }},
        BadOpen{"prompt=(16 tokens with output_so_far), expected fewer than the context length 16", kBad,
                "BAD_REQUEST", [](auto& o) { Seq(o).mutable_prompt()->Resize(16, 1); }},
        BadOpen{"output_so_far[0]=100", kBad, "BAD_REQUEST", [](auto& o) { Seq(o).add_output_so_far(100); }},
        BadOpen{"output_so_far=(4 tokens), expected fewer than max_tokens 4", kBad, "BAD_REQUEST",
                [](auto& o) { Seq(o).mutable_output_so_far()->Resize(4, 1); }},
        BadOpen{"sampling=unset", kBad, "BAD_REQUEST", [](auto& o) { Seq(o).clear_sampling(); }},
        BadOpen{"temperature=-1", kBad, "BAD_REQUEST", [](auto& o) { Sam(o).set_temperature(-1); }},
        BadOpen{"temperature=nan", kBad, "BAD_REQUEST",
                [](auto& o) { Sam(o).set_temperature(std::nanf("")); }},
        BadOpen{"temperature=inf", kBad, "BAD_REQUEST",
                [](auto& o) { Sam(o).set_temperature(std::numeric_limits<float>::infinity()); }},
        BadOpen{"top_k=-1", kBad, "BAD_REQUEST", [](auto& o) { Sam(o).set_top_k(-1); }},
        BadOpen{"top_k=101, expected a value in [0, 100]", kBad, "BAD_REQUEST",
                [](auto& o) { Sam(o).set_top_k(101); }},
        BadOpen{"top_p=1.5", kBad, "BAD_REQUEST", [](auto& o) { Sam(o).set_top_p(1.5f); }},
        BadOpen{"top_p=nan", kBad, "BAD_REQUEST", [](auto& o) { Sam(o).set_top_p(std::nanf("")); }},
        BadOpen{"min_p=-0.5", kBad, "BAD_REQUEST", [](auto& o) { Sam(o).set_min_p(-0.5f); }},
        BadOpen{"max_tokens=0", kBad, "BAD_REQUEST", [](auto& o) { Sam(o).set_max_tokens(0); }},
        BadOpen{"stop_ids[0]=100", kBad, "BAD_REQUEST", [](auto& o) { Sam(o).add_stop_ids(100); }},
        BadOpen{"stop_ids count=129", kBad, "BAD_REQUEST",
                [](auto& o) { Sam(o).mutable_stop_ids()->Resize(129, 1); }},
        BadOpen{"mode=77", kBad, "BAD_REQUEST",
                [](auto& o) { Seq(o).set_mode(static_cast<v1::SpeculationMode>(77)); }},
        BadOpen{"tree_nodes=32, expected a value in [0, 31]", kBad, "BAD_REQUEST",
                [](auto& o) { Seq(o).set_tree_nodes(32); }},
        BadOpen{"feature_window=-1", kBad, "BAD_REQUEST", [](auto& o) { o.set_feature_window(-1); }},
        BadOpen{"feature_window=17", kBad, "BAD_REQUEST", [](auto& o) { o.set_feature_window(17); }},
        BadOpen{"priority=101", kBad, "BAD_REQUEST", [](auto& o) { Seq(o).set_priority(101); }}));

v1::LogitBias& Bias(v1::Open& open, int32_t id, float bias) {
  v1::LogitBias& added = *Sam(open).add_logit_bias();
  added.set_token_id(id);
  added.set_bias(bias);
  return added;
}

INSTANTIATE_TEST_SUITE_P(
    Controls, BadOpenTest,
    ::testing::Values(
        BadOpen{"repetition_penalty=-1, expected a value in (0, 10], or 0 for 1", kBad, "BAD_REQUEST",
                [](auto& o) { Sam(o).set_repetition_penalty(-1); }},
        BadOpen{"repetition_penalty=10.5", kBad, "BAD_REQUEST",
                [](auto& o) { Sam(o).set_repetition_penalty(10.5f); }},
        BadOpen{"repetition_penalty=nan", kBad, "BAD_REQUEST",
                [](auto& o) { Sam(o).set_repetition_penalty(std::nanf("")); }},
        BadOpen{"presence_penalty=2.5, expected a value in [-2, 2]", kBad, "BAD_REQUEST",
                [](auto& o) { Sam(o).set_presence_penalty(2.5f); }},
        BadOpen{"presence_penalty=nan", kBad, "BAD_REQUEST",
                [](auto& o) { Sam(o).set_presence_penalty(std::nanf("")); }},
        BadOpen{"frequency_penalty=-2.5, expected a value in [-2, 2]", kBad, "BAD_REQUEST",
                [](auto& o) { Sam(o).set_frequency_penalty(-2.5f); }},
        BadOpen{"frequency_penalty=inf", kBad, "BAD_REQUEST",
                [](auto& o) { Sam(o).set_frequency_penalty(std::numeric_limits<float>::infinity()); }},
        BadOpen{"logit_bias count=1025, expected at most 1024", kBad, "BAD_REQUEST",
                [](auto& o) {
                  for (int i = 0; i < 1025; ++i) {
                    Bias(o, i, 1);
                  }
                }},
        BadOpen{"logit_bias[0].token_id=100, expected an id in [0, 100)", kBad, "BAD_REQUEST",
                [](auto& o) { Bias(o, 100, 1); }},
        BadOpen{"logit_bias[0].token_id=-1", kBad, "BAD_REQUEST", [](auto& o) { Bias(o, -1, 1); }},
        BadOpen{"logit_bias[0].bias=100.5, expected a finite value in [-100, 100]", kBad, "BAD_REQUEST",
                [](auto& o) { Bias(o, 3, 100.5f); }},
        BadOpen{"logit_bias[0].bias=nan", kBad, "BAD_REQUEST", [](auto& o) { Bias(o, 3, std::nanf("")); }},
        BadOpen{"logit_bias=7 more than once, expected distinct ids", kBad, "BAD_REQUEST",
                [](auto& o) {
                  Bias(o, 7, 1);
                  Bias(o, 8, 1);
                  Bias(o, 7, 2);
                }},
        BadOpen{"allowed_token_ids[1]=100, expected an id in [0, 100)", kBad, "BAD_REQUEST",
                [](auto& o) {
                  Sam(o).add_allowed_token_ids(1);
                  Sam(o).add_allowed_token_ids(100);
                }},
        BadOpen{"allowed_token_ids=4 more than once", kBad, "BAD_REQUEST",
                [](auto& o) {
                  Sam(o).add_allowed_token_ids(4);
                  Sam(o).add_allowed_token_ids(4);
                }},
        BadOpen{"min_tokens=-1, expected a value in [0, max_tokens 4]", kBad, "BAD_REQUEST",
                [](auto& o) { Sam(o).set_min_tokens(-1); }},
        BadOpen{"min_tokens=5, expected a value in [0, max_tokens 4]", kBad, "BAD_REQUEST",
                [](auto& o) { Sam(o).set_min_tokens(5); }},
        BadOpen{"min_tokens=1, expected 0 where allowed_token_ids holds nothing but stop_ids", kBad,
                "BAD_REQUEST",
                [](auto& o) {
                  Sam(o).set_min_tokens(1);
                  Sam(o).add_allowed_token_ids(4);
                  Sam(o).add_stop_ids(4);
                }},
        BadOpen{"min_tokens=1, expected 0 where every id is a stop id", kBad, "BAD_REQUEST",
                [](auto& o) {
                  Sam(o).set_min_tokens(1);
                  for (int id = 0; id < 100; ++id) {
                    Sam(o).add_stop_ids(id);
                  }
                }},
        BadOpen{"top_log_probs=21, expected a value in [0, 20]", kBad, "BAD_REQUEST",
                [](auto& o) { Sam(o).set_top_log_probs(21); }},
        BadOpen{"top_log_probs=-1", kBad, "BAD_REQUEST", [](auto& o) { Sam(o).set_top_log_probs(-1); }}));

TEST(DecodeOpenTest, ReadsControls) {
  v1::Open open = GoodOpen();
  Sam(open).set_repetition_penalty(1.25f);
  Sam(open).set_presence_penalty(-0.5f);
  Sam(open).set_frequency_penalty(2);
  Bias(open, 9, -3);
  Sam(open).add_allowed_token_ids(9);
  Sam(open).add_allowed_token_ids(2);
  Sam(open).set_min_tokens(4);
  Sam(open).set_top_log_probs(20);
  Sam(open).set_prompt_log_probs(true);
  const auto args = DecodeOpen(open, kInfo);
  ASSERT_TRUE(args.ok()) << args.status();
  const SamplingControls& controls = args->controls;
  EXPECT_EQ(controls.repetition_penalty, 1.25f);
  EXPECT_EQ(controls.presence_penalty, -0.5f);
  EXPECT_EQ(controls.frequency_penalty, 2);
  ASSERT_EQ(controls.logit_bias.size(), 1u);
  EXPECT_EQ(controls.logit_bias[0].token, TokenId{9});
  EXPECT_EQ(controls.logit_bias[0].bias, -3);
  EXPECT_THAT(controls.allowed_token_ids, ElementsAre(TokenId{9}, TokenId{2}));
  EXPECT_EQ(controls.min_tokens, 4);
  EXPECT_EQ(controls.top_log_probs, 20);
  EXPECT_TRUE(controls.prompt_log_probs);
  Sam(open).clear_repetition_penalty();
  EXPECT_EQ(DecodeOpen(open, kInfo)->controls.repetition_penalty, 1) << "0 means 1";
}

TEST(EncodeCommittedTest, TellsOneTopListAToken) {
  Committed committed;
  committed.tokens = {TokenId{5}, TokenId{6}};
  committed.log_probs = {-1, -2};
  committed.top_log_probs = {{TokenId{5}, -1}, {TokenId{1}, -3}, {TokenId{2}, -0.5f}, {TokenId{6}, -2}};
  const v1::Committed message = EncodeCommitted(committed).committed();
  ASSERT_EQ(message.top_log_probs_size(), 2);
  ASSERT_EQ(message.top_log_probs(1).tokens_size(), 2);
  EXPECT_EQ(message.top_log_probs(0).tokens(1).token_id(), 1);
  EXPECT_EQ(message.top_log_probs(0).tokens(1).log_prob(), -3);
  EXPECT_EQ(message.top_log_probs(1).tokens(0).token_id(), 2);
}

TEST(DecodeOpenTest, ReadsSampleIndexAndPriority) {
  v1::Open open = GoodOpen();
  Seq(open).set_sample_index(3);
  Seq(open).set_priority(-7);
  const auto args = DecodeOpen(open, kInfo);
  ASSERT_TRUE(args.ok()) << args.status();
  EXPECT_EQ(args->key.sample_index, 3u);
  EXPECT_EQ(args->sampling.sample_index, 3u);
  EXPECT_EQ(args->priority, -7);
}

Committed Decoded(int32_t position, bool last) {
  Committed committed;
  committed.epoch = 1;
  committed.round = 3;
  committed.last = last;
  committed.first_position = position;
  committed.tokens = {TokenId{position * 10}};
  committed.log_probs = {-1};
  committed.top_log_probs = {{TokenId{position}, -1}};
  committed.verify_seconds = 0.5;
  committed.feature_position = position - 1;
  committed.feature_rows = 1;
  committed.features = {uint16_t(position), 2, 3, 4};
  return committed;
}

TEST(MergeDecodedTest, JoinsNeighboursOfOneDecode) {
  v1::VerifyResponse tail = EncodeCommitted(Decoded(7, false));
  v1::VerifyResponse next = EncodeCommitted(Decoded(8, true));
  ASSERT_TRUE(MergeDecoded(tail, next));
  const v1::Committed& joined = tail.committed();
  EXPECT_EQ(joined.first_position(), 7);
  EXPECT_THAT(joined.token_ids(), ElementsAre(70, 80));
  EXPECT_EQ(joined.log_probs_size(), 2);
  ASSERT_EQ(joined.top_log_probs_size(), 2);
  EXPECT_EQ(joined.top_log_probs(1).tokens(0).token_id(), 8);
  EXPECT_TRUE(joined.last());
  EXPECT_EQ(joined.verify_seconds(), 1.0);
  EXPECT_EQ(joined.features().first_position(), 6);
  EXPECT_EQ(joined.features().row_count(), 2);
  EXPECT_EQ(joined.features().rows().size(), 16u);
  EXPECT_EQ(joined.features().rows()[8], 8);
}

TEST(MergeDecodedTest, KeepsApartWhatIsNotOneDecode) {
  const v1::VerifyResponse tail = EncodeCommitted(Decoded(7, false));
  const auto merges = [&tail](Committed committed) {
    v1::VerifyResponse a = tail;
    v1::VerifyResponse b = EncodeCommitted(committed);
    return MergeDecoded(a, b);
  };
  Committed other_round = Decoded(8, false);
  other_round.round = 4;
  EXPECT_FALSE(merges(other_round));
  EXPECT_FALSE(merges(Decoded(9, false)));
  Committed no_features = Decoded(8, false);
  no_features.feature_rows = 0;
  EXPECT_FALSE(merges(no_features));
  v1::VerifyResponse finished = EncodeCommitted(Decoded(7, true));
  v1::VerifyResponse next = EncodeCommitted(Decoded(8, false));
  EXPECT_FALSE(MergeDecoded(finished, next));
  v1::VerifyResponse progress = EncodeProgress(ProgressState::kWaiting, 1, 5);
  EXPECT_FALSE(MergeDecoded(progress, next));
}

TEST(MergePromptLogProbsTest, JoinsNeighboursUpToTheBoundOfAMessage) {
  const std::vector<float> some(1000, -2.0f);
  v1::VerifyResponse tail = EncodePromptLogProbs(1, some);
  for (const int32_t first : {1001, 2001, 3001}) {
    ASSERT_TRUE(MergePromptLogProbs(tail, EncodePromptLogProbs(first, some)));
  }
  EXPECT_EQ(tail.prompt_log_probs().first_position(), 1);
  EXPECT_EQ(tail.prompt_log_probs().log_probs_size(), 4000);
  EXPECT_FALSE(MergePromptLogProbs(tail, EncodePromptLogProbs(4001, some))) << "too many";
  EXPECT_FALSE(MergePromptLogProbs(tail, EncodePromptLogProbs(4002, {-1.0f}))) << "a gap";
  EXPECT_TRUE(MergePromptLogProbs(tail, EncodePromptLogProbs(4001, std::vector<float>(96, -1.0f))));
  EXPECT_FALSE(MergePromptLogProbs(tail, EncodeCommitted(Decoded(8, false))));
  v1::VerifyResponse committed = EncodeCommitted(Decoded(8, false));
  EXPECT_FALSE(MergePromptLogProbs(committed, EncodePromptLogProbs(9, some)));
}

}  // namespace
}  // namespace arborist::verifier
