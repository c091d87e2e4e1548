#include "coordinator/request_codec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <limits>

#include "common/rpc/status_bridge.h"

namespace arborist::coordinator {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class RequestCodecTest : public ::testing::Test {
 protected:
  RequestCodecTest()
      : tokenizer_(
            *Tokenizer::Load(std::string(std::getenv("ARBORIST_SOURCE_DIR")) + "/tests/golden/tokenizer")) {
    request_.set_text("hello");
    defaults_.eos_ids = {TokenId{1}, TokenId{4}};
    defaults_.temperature = 0.5f;
    defaults_.mode = Mode::kTree;
    defaults_.tree_nodes = 12;
  }

  absl::StatusOr<ResolvedRequest> Resolve() {
    return ResolveRequest(request_, model_, "tiny", defaults_, limits_, tokenizer_);
  }
  void ExpectRefused(const std::string& field, const std::string& message,
                     absl::StatusCode code = absl::StatusCode::kInvalidArgument) {
    const auto resolved = Resolve();
    EXPECT_EQ(resolved.status().code(), code) << resolved.status();
    EXPECT_THAT(std::string(resolved.status().message()), HasSubstr(message));
    const auto violations = FieldViolationsOf(resolved.status());
    ASSERT_EQ(violations.size(), 1u) << resolved.status();
    EXPECT_EQ(violations[0].field, field);
  }

  Tokenizer tokenizer_;
  v1::GenerateRequest request_;
  GenerationDefaults defaults_;
  RequestLimits limits_{.max_samples = 8, .max_timeout = absl::Minutes(10)};
  VerifierFacts model_{.protocol_version = 1,
                       .fingerprint = "print",
                       .projection_hash = "",
                       .model_name = "tiny",
                       .vocabulary_size = 1024,
                       .context_length = 100,
                       .max_tree_nodes = 64};
};

TEST_F(RequestCodecTest, WhatIsLeftOpenComesFromTheDefaults) {
  const auto resolved = Resolve();
  ASSERT_TRUE(resolved.ok()) << resolved.status();
  const SamplingParameters& sampling = resolved->start.sampling;
  EXPECT_EQ(sampling.temperature, 0.5f);
  EXPECT_EQ(sampling.top_p, 1.0f);
  EXPECT_EQ(sampling.top_k, 0);
  EXPECT_EQ(sampling.max_tokens, 100);
  EXPECT_THAT(sampling.stop_ids, ElementsAre(TokenId{1}, TokenId{4}));
  EXPECT_EQ(resolved->start.mode, Mode::kTree);
  EXPECT_EQ(resolved->start.tree_nodes, 12);
  EXPECT_EQ(resolved->start.fingerprint, "print");
  EXPECT_NE(Resolve()->start.sampling.seed, Resolve()->start.sampling.seed) << "drawn anew for each request";
}

TEST_F(RequestCodecTest, WhatIsGivenIsKept) {
  request_.set_temperature(0);
  request_.set_top_k(7);
  request_.set_top_p(0.9f);
  request_.set_min_p(0.1f);
  request_.set_seed(0);
  request_.set_max_tokens(9);
  request_.set_ignore_eos(true);
  request_.add_stop_ids(8);
  request_.add_stop_ids(8);
  request_.add_stop("x");
  request_.mutable_timeout()->set_seconds(3);
  request_.mutable_speculation()->set_mode(v1::SPECULATION_MODE_CHAIN);
  request_.mutable_speculation()->set_tree_nodes(5);
  const auto resolved = Resolve();
  ASSERT_TRUE(resolved.ok()) << resolved.status();
  const SamplingParameters& sampling = resolved->start.sampling;
  EXPECT_EQ(sampling.temperature, 0);
  EXPECT_EQ(sampling.top_k, 7);
  EXPECT_EQ(sampling.seed, 0u);
  EXPECT_EQ(sampling.max_tokens, 9);
  EXPECT_THAT(sampling.stop_ids, ElementsAre(TokenId{8}));
  EXPECT_THAT(resolved->text.stops, ElementsAre("x"));
  EXPECT_EQ(resolved->timeout, absl::Seconds(3));
  EXPECT_EQ(resolved->start.mode, Mode::kChain);
  EXPECT_EQ(resolved->start.tree_nodes, 5);
}

TEST_F(RequestCodecTest, PromptsOfEveryKindBecomeIds) {
  request_.mutable_token_ids()->add_ids(5);
  EXPECT_THAT(Resolve()->start.prompt, ElementsAre(TokenId{5}));
  auto* message = request_.mutable_chat()->add_messages();
  message->set_role("user");
  message->set_content("hi");
  EXPECT_EQ(tokenizer_.Decode(Resolve()->start.prompt, false),
            "<|im_user|>user<|im_middle|>hi<|im_end|><|im_assistant|>assistant<|im_middle|>");
}

TEST_F(RequestCodecTest, ValuesOutOfBoundsAreRefusedByFieldValueAndExpectation) {
  const auto refused = [&](const std::string& field, const std::string& message, auto change) {
    v1::GenerateRequest before = request_;
    change(request_);
    ExpectRefused(field, message);
    request_ = before;
  };
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  using Request = v1::GenerateRequest;
  refused("temperature", "temperature=-1, expected", [](Request& r) { r.set_temperature(-1); });
  refused("temperature", "temperature=nan", [](Request& r) { r.set_temperature(kNan); });
  refused("temperature", "temperature=inf", [](Request& r) { r.set_temperature(INFINITY); });
  refused("top_p", "top_p=0, expected a number in (0, 1]", [](Request& r) { r.set_top_p(0); });
  refused("top_p", "top_p=1.5", [](Request& r) { r.set_top_p(1.5f); });
  refused("min_p", "min_p=2", [](Request& r) { r.set_min_p(2); });
  refused("top_k", "top_k=-1, expected an integer in [0, 1024]", [](Request& r) { r.set_top_k(-1); });
  refused("top_k", "top_k=1025", [](Request& r) { r.set_top_k(1025); });
  refused("max_tokens", "max_tokens=0, expected an integer in [1, 100]",
          [](Request& r) { r.set_max_tokens(0); });
  refused("max_tokens", "max_tokens=101", [](Request& r) { r.set_max_tokens(101); });
  refused("stop[1]", "stop[1]=0 bytes", [](Request& r) { r.add_stop("a"), r.add_stop(""); });
  refused("stop[0]", "stop[0]=257 bytes", [](Request& r) { r.add_stop(std::string(257, 'a')); });
  refused("stop", "stop=17 strings", [](Request& r) {
    for (int i = 0; i < 17; ++i) r.add_stop("a");
  });
  refused("stop_ids[0]", "stop_ids[0]=1024", [](Request& r) { r.add_stop_ids(1024); });
  refused("timeout", "expected a duration > 0", [](Request& r) { r.mutable_timeout()->set_seconds(-1); });
  refused("speculation.tree_nodes", "tree_nodes=65, expected an integer in [1, 64]",
          [](Request& r) { r.mutable_speculation()->set_tree_nodes(65); });
  refused("speculation.mode", "expected AUTO",
          [](Request& r) { r.mutable_speculation()->set_mode(static_cast<v1::SpeculationMode>(77)); });
  refused("text", "text=0 tokens, expected 1 to 99 tokens", [](Request& r) { r.set_text(""); });
  refused("text", "tokens, expected 1 to 99", [](Request& r) { r.set_text(std::string(1000, '7')); });
  refused("token_ids[0]", "token_ids[0]=-1", [](Request& r) { r.mutable_token_ids()->add_ids(-1); });
  refused("token_ids", "token_ids=0 tokens", [](Request& r) { r.mutable_token_ids(); });
  refused("prompt", "prompt=nothing, expected one of", [](Request& r) { r.clear_prompt(); });
  refused("chat.messages", "chat.messages=0", [](Request& r) { r.mutable_chat(); });
  refused("chat.messages[0].role", "role=wizard, expected user",
          [](Request& r) { r.mutable_chat()->add_messages()->set_role("wizard"); });
  refused("client_request_id", "129 bytes",
          [](Request& r) { r.set_client_request_id(std::string(129, 'a')); });
}

TEST_F(RequestCodecTest, MediaAreRefusedByName) {
  request_.add_media()->set_mime_type("image/png");
  ExpectRefused("media", "media=1 (image/png), expected none: no model served here takes images",
                absl::StatusCode::kUnimplemented);
  EXPECT_EQ(ReasonOf(Resolve().status()), reason::kUnsupportedField);
}

TEST_F(RequestCodecTest, AnotherModelIsNotFound) {
  request_.set_model("tiny");
  EXPECT_TRUE(Resolve().ok());
  request_.set_model("big");
  EXPECT_EQ(Resolve().status().code(), absl::StatusCode::kNotFound);
}

TEST_F(RequestCodecTest, AVerifierWithoutTreesDecodesPlainly) {
  model_.max_tree_nodes = 0;
  EXPECT_EQ(Resolve()->start.mode, Mode::kOff);
}

class DefaultsTest : public ::testing::Test {
 protected:
  absl::StatusOr<GenerationDefaults> Read(const std::string& generation, const std::string& config) {
    const std::string folder = ::testing::TempDir();
    std::ofstream(folder + "/generation_config.json") << generation;
    std::ofstream(folder + "/config.json") << config;
    return ReadGenerationDefaults(folder);
  }
};

TEST_F(DefaultsTest, EndIdsAreOneOrManyFromTheFirstFileThatNamesThem) {
  EXPECT_THAT(Read(R"({"eos_token_id":[1,4]})", R"({"eos_token_id":9})")->eos_ids,
              ElementsAre(TokenId{1}, TokenId{4}));
  EXPECT_THAT(Read("{}", R"({"eos_token_id":9})")->eos_ids, ElementsAre(TokenId{9}));
  EXPECT_THAT(Read("{}", R"({"text_config":{"eos_token_id":8}})")->eos_ids, ElementsAre(TokenId{8}));
  EXPECT_TRUE(Read("{}", "{}")->eos_ids.empty());
}

TEST_F(DefaultsTest, TemperatureIsGreedyUnlessTheModelSamples) {
  EXPECT_EQ(Read("{}", "{}")->temperature, 0);
  EXPECT_EQ(Read(R"({"do_sample":true})", "{}")->temperature, 1);
  EXPECT_EQ(Read(R"({"do_sample":true,"temperature":0.6,"top_p":0.95})", "{}")->temperature, 0.6f);
}

TEST_F(DefaultsTest, ARepetitionPenaltyOfTheModelIsADefault) {
  EXPECT_EQ(Read("{}", "{}")->repetition_penalty, 1);
  EXPECT_EQ(Read(R"({"repetition_penalty":1.1})", "{}")->repetition_penalty, 1.1f);
}

TEST_F(DefaultsTest, ValuesWeCannotServeAreRefusedByName) {
  const auto message = [&](const std::string& json) {
    return std::string(Read(json, "{}").status().message());
  };
  EXPECT_THAT(message(R"({"repetition_penalty":0})"),
              HasSubstr("repetition_penalty=0, expected a number in (0"));
  EXPECT_THAT(message(R"({"repetition_penalty":11})"), HasSubstr("repetition_penalty=11"));
  EXPECT_THAT(message(R"({"temperature":-1})"), HasSubstr("temperature=-1"));
  EXPECT_THAT(message(R"({"top_p":0})"), HasSubstr("top_p=0"));
  EXPECT_THAT(message(R"({"eos_token_id":"x"})"), HasSubstr("eos_token_id"));
}

}  // namespace
}  // namespace arborist::coordinator
