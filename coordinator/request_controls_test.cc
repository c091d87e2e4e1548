// Controls on sampling, forms of the output and what a request may ask beside its text.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <limits>

#include "common/rpc/status_bridge.h"
#include "coordinator/request_codec.h"
#include "coordinator/sequence_codec.h"

namespace arborist::coordinator {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Request = v1::GenerateRequest;

class RequestControlsTest : public ::testing::Test {
 protected:
  RequestControlsTest()
      : tokenizer_(
            *Tokenizer::Load(std::string(std::getenv("ARBORIST_SOURCE_DIR")) + "/tests/golden/tokenizer")) {
    request_.set_text("hello");
    model_.vocabulary_size = 1024;
    model_.context_length = 100;
    model_.max_tree_nodes = 64;
  }

  absl::StatusOr<ResolvedRequest> Resolve() {
    return ResolveRequest(request_, model_, "tiny", defaults_, limits_, tokenizer_);
  }
  v1::Sequence Sent() {
    const auto resolved = Resolve();
    EXPECT_TRUE(resolved.ok()) << resolved.status();
    v1::Sequence sequence;
    EncodeSequence(resolved->start, sequence);
    return sequence;
  }
  template <typename Change>
  void ExpectRefused(const std::string& field, const std::string& message, Change change) {
    const Request before = request_;
    change(request_);
    const absl::Status status = Resolve().status();
    request_ = before;
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << field << ": " << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(message));
    ASSERT_EQ(FieldViolationsOf(status).size(), 1u) << status;
    EXPECT_EQ(FieldViolationsOf(status)[0].field, field);
  }

  Tokenizer tokenizer_;
  Request request_;
  GenerationDefaults defaults_;
  RequestLimits limits_{.max_samples = 8, .max_timeout = absl::Minutes(10)};
  VerifierFacts model_;
};

TEST_F(RequestControlsTest, NothingIsControlledUnlessItIsAskedFor) {
  const v1::Sequence sequence = Sent();
  const v1::Sampling& sampling = sequence.sampling();
  EXPECT_EQ(sampling.repetition_penalty(), 1);
  EXPECT_EQ(sampling.presence_penalty(), 0);
  EXPECT_EQ(sampling.frequency_penalty(), 0);
  EXPECT_EQ(sampling.logit_bias_size() + sampling.allowed_token_ids_size() + sampling.bad_words_size(), 0);
  EXPECT_EQ(sampling.min_tokens(), 0);
  EXPECT_EQ(sampling.top_log_probs(), 0);
  EXPECT_FALSE(sampling.prompt_log_probs());
  EXPECT_EQ(sampling.constraint_case(), v1::Sampling::CONSTRAINT_NOT_SET);
  EXPECT_EQ(sequence.priority(), 0);
  EXPECT_EQ(Resolve()->samples, 1);
  EXPECT_FALSE(Resolve()->text.echo);
  EXPECT_FALSE(Resolve()->start.sampling.log_probs);
}

TEST_F(RequestControlsTest, EveryControlReachesTheWire) {
  request_.set_repetition_penalty(1.25f);
  request_.set_presence_penalty(-0.5f);
  request_.set_frequency_penalty(2);
  auto* bias = request_.add_logit_bias();
  bias->set_token_id(7);
  bias->set_bias(-100);
  request_.add_allowed_token_ids(9);
  request_.add_allowed_token_ids(3);
  request_.add_bad_words("bad");
  request_.set_min_tokens(4);
  request_.set_top_log_probs(20);
  request_.set_prompt_log_probs(true);
  request_.set_priority(-100);
  request_.set_json_schema("{}");
  request_.set_log_probs(true);
  request_.set_echo(true);
  request_.set_n(8);
  const v1::Sequence sequence = Sent();
  const v1::Sampling& sampling = sequence.sampling();
  EXPECT_EQ(sampling.repetition_penalty(), 1.25f);
  EXPECT_EQ(sampling.presence_penalty(), -0.5f);
  EXPECT_EQ(sampling.frequency_penalty(), 2);
  ASSERT_EQ(sampling.logit_bias_size(), 1);
  EXPECT_EQ(sampling.logit_bias(0).token_id(), 7);
  EXPECT_EQ(sampling.logit_bias(0).bias(), -100);
  EXPECT_THAT(sampling.allowed_token_ids(), ElementsAre(9, 3));
  EXPECT_THAT(sampling.bad_words(), ElementsAre("bad"));
  EXPECT_EQ(sampling.min_tokens(), 4);
  EXPECT_EQ(sampling.top_log_probs(), 20);
  EXPECT_TRUE(sampling.prompt_log_probs());
  EXPECT_EQ(sampling.json_schema(), "{}");
  EXPECT_EQ(sequence.priority(), -100);
  EXPECT_TRUE(Resolve()->start.sampling.log_probs);
  EXPECT_TRUE(Resolve()->text.echo);
  EXPECT_EQ(Resolve()->samples, 8);
}

TEST_F(RequestControlsTest, ARegularExpressionIsPassedOn) {
  request_.set_regex("[0-9]+");
  EXPECT_EQ(Sent().sampling().constraint_case(), v1::Sampling::kRegex);
  EXPECT_EQ(Sent().sampling().regex(), "[0-9]+");
}

TEST_F(RequestControlsTest, TheModelsRepetitionPenaltyIsTheDefault) {
  defaults_.repetition_penalty = 1.5f;
  EXPECT_EQ(Sent().sampling().repetition_penalty(), 1.5f);
  request_.set_repetition_penalty(1);
  EXPECT_EQ(Sent().sampling().repetition_penalty(), 1);
}

TEST_F(RequestControlsTest, PenaltiesOutOfBoundsAreRefused) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  ExpectRefused("repetition_penalty", "repetition_penalty=0, expected a number in (0, 10]",
                [](Request& r) { r.set_repetition_penalty(0); });
  ExpectRefused("repetition_penalty", "=10.5", [](Request& r) { r.set_repetition_penalty(10.5f); });
  ExpectRefused("repetition_penalty", "=nan", [](Request& r) { r.set_repetition_penalty(kNan); });
  ExpectRefused("presence_penalty", "presence_penalty=2.5, expected a number in [-2, 2]",
                [](Request& r) { r.set_presence_penalty(2.5f); });
  ExpectRefused("frequency_penalty", "=-inf", [](Request& r) { r.set_frequency_penalty(-INFINITY); });
}

TEST_F(RequestControlsTest, BiasesAndAllowedIdsAreRefusedByPlace) {
  const auto bias = [](Request& r, int32_t id, float value) {
    auto* entry = r.add_logit_bias();
    entry->set_token_id(id);
    entry->set_bias(value);
  };
  ExpectRefused("logit_bias[1].token_id", "logit_bias[1].token_id=5, expected ids that differ",
                [&](Request& r) { bias(r, 5, 1), bias(r, 5, 2); });
  ExpectRefused("logit_bias[0].token_id", "=1024, expected an id in [0, 1024)",
                [&](Request& r) { bias(r, 1024, 1); });
  ExpectRefused("logit_bias[0].bias", "=100.5, expected a number in [-100, 100]",
                [&](Request& r) { bias(r, 0, 100.5f); });
  ExpectRefused("logit_bias[0].bias", "=nan", [&](Request& r) { bias(r, 0, NAN); });
  ExpectRefused("logit_bias", "logit_bias=1025 ids, expected at most 1024", [&](Request& r) {
    for (int i = 0; i < 1025; ++i) bias(r, i, 1);
  });
  ExpectRefused("allowed_token_ids[0]", "allowed_token_ids[0]=-1",
                [](Request& r) { r.add_allowed_token_ids(-1); });
  ExpectRefused("allowed_token_ids[2]", "=4, expected ids that differ", [](Request& r) {
    for (const int id : {4, 5, 4}) r.add_allowed_token_ids(id);
  });
}

TEST_F(RequestControlsTest, StringsAndFormsOutOfBoundsAreRefused) {
  ExpectRefused("bad_words[0]", "bad_words[0]=0 bytes, expected 1 to 256 bytes",
                [](Request& r) { r.add_bad_words(""); });
  ExpectRefused("bad_words[1]", "=257 bytes",
                [](Request& r) { r.add_bad_words("a"), r.add_bad_words(std::string(257, 'a')); });
  ExpectRefused("bad_words", "bad_words=129 strings, expected at most 128", [](Request& r) {
    for (int i = 0; i < 129; ++i) r.add_bad_words("a");
  });
  ExpectRefused("bad_words[0]", "a broken character at byte 1, expected UTF-8",
                [](Request& r) { r.add_bad_words("a\xff"); });
  ExpectRefused("stop[0]", "expected UTF-8", [](Request& r) { r.add_stop("\xE6\xBC"); });
  ExpectRefused("json_schema", "json_schema=0 bytes, expected 1 to 65536",
                [](Request& r) { r.set_json_schema(""); });
  ExpectRefused("json_schema", "=65537 bytes",
                [](Request& r) { r.set_json_schema(std::string(65537, ' ')); });
  ExpectRefused("regex", "regex=0 bytes, expected 1 to 4096",  // as the verifier does
                [](Request& r) { r.set_regex(""); });
  ExpectRefused("regex", "regex=4097 bytes, expected 1 to 4096",
                [](Request& r) { r.set_regex(std::string(4097, 'a')); });
  ExpectRefused("regex", "expected UTF-8", [](Request& r) { r.set_regex("\xED\xA0\x80"); });
}

TEST_F(RequestControlsTest, CountsOutOfBoundsAreRefused) {
  ExpectRefused("min_tokens", "min_tokens=-1, expected an integer in [0, 100]",
                [](Request& r) { r.set_min_tokens(-1); });
  ExpectRefused("min_tokens", "min_tokens=8, expected an integer in [0, 7]",
                [](Request& r) { r.set_max_tokens(7), r.set_min_tokens(8); });
  ExpectRefused("min_tokens", "min_tokens=1, expected 0 where allowed_token_ids holds nothing but stop_ids",
                [](Request& r) { r.set_min_tokens(1), r.add_allowed_token_ids(7), r.add_stop_ids(7); });
  ExpectRefused("n", "n=-1, expected an integer in [1, 8], or 0 for 1", [](Request& r) { r.set_n(-1); });
  ExpectRefused("n", "n=9, expected", [](Request& r) { r.set_n(9); });
  ExpectRefused("top_log_probs", "top_log_probs=21, expected an integer in [0, 20]",
                [](Request& r) { r.set_top_log_probs(21); });
  ExpectRefused("priority", "priority=101, expected an integer in [-100, 100]",
                [](Request& r) { r.set_priority(101); });
  ExpectRefused("stop_ids", "stop_ids=65 ids, expected at most 64", [](Request& r) {
    for (int i = 0; i < 65; ++i) r.add_stop_ids(i);
  });
}

TEST_F(RequestControlsTest, ATimeoutIsPositiveAndWithinTheServersLimit) {
  request_.mutable_timeout()->set_seconds(600);
  EXPECT_EQ(Resolve()->timeout, absl::Minutes(10));
  ExpectRefused("timeout", "timeout=10m1s, expected a duration > 0, at most 10m",
                [](Request& r) { r.mutable_timeout()->set_seconds(601); });
  ExpectRefused("timeout", "timeout=0, expected", [](Request& r) { r.mutable_timeout()->set_seconds(0); });
  ExpectRefused("timeout", "timeout=1s and -5 nanos",
                [](Request& r) { r.mutable_timeout()->set_seconds(1), r.mutable_timeout()->set_nanos(-5); });
  ExpectRefused("timeout", "expected a duration > 0",
                [](Request& r) { r.mutable_timeout()->set_seconds(std::numeric_limits<int64_t>::max()); });
}

}  // namespace
}  // namespace arborist::coordinator
