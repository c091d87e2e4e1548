#include "coordinator/cli/generate_flags.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <set>
#include <string>
#include <vector>

#include "google/protobuf/text_format.h"

namespace arborist::coordinator {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string Written(const std::string& name, const std::string& content) {
  const std::string path = ::testing::TempDir() + "/" + name;
  std::ofstream(path) << content;
  return path;
}

absl::StatusOr<GenerateFlags> Parse(std::vector<const char*> words) {
  words.insert(words.begin(), "generate");
  GenerateFlags flags;
  const absl::Status status = ParseGenerateFlags(static_cast<int>(words.size()), words.data(), flags);
  return status.ok() ? absl::StatusOr<GenerateFlags>(std::move(flags)) : status;
}

std::string Mistake(std::vector<const char*> words) {
  const auto flags = Parse(std::move(words));
  EXPECT_EQ(flags.status().code(), absl::StatusCode::kInvalidArgument);
  return std::string(flags.status().message());
}

TEST(GenerateFlagsTest, EveryFlagReachesItsField) {
  const auto flags = Parse({"--address",
                            "unix:/tmp/x",
                            "--prompt",
                            "hi",
                            "--max-tokens=5",
                            "--temperature",
                            "0.5",
                            "--top-p",
                            "0.9",
                            "--top-k",
                            "3",
                            "--min-p",
                            "0.1",
                            "--seed",
                            "18446744073709551615",
                            "--stop",
                            "a",
                            "--stop",
                            "b",
                            "--stop-id",
                            "7",
                            "--ignore-eos",
                            "--speculation",
                            "chain",
                            "--tree-nodes",
                            "9",
                            "--timeout",
                            "2s",
                            "--json"});
  ASSERT_TRUE(flags.ok()) << flags.status();
  const v1::GenerateRequest& request = flags->request;
  EXPECT_EQ(flags->connection.address, "unix:/tmp/x");
  EXPECT_EQ(flags->connection.timeout, absl::Seconds(2));
  EXPECT_EQ(request.text(), "hi");
  EXPECT_EQ(request.max_tokens(), 5);
  EXPECT_EQ(request.temperature(), 0.5f);
  EXPECT_EQ(request.top_p(), 0.9f);
  EXPECT_EQ(request.top_k(), 3);
  EXPECT_EQ(request.min_p(), 0.1f);
  EXPECT_EQ(request.seed(), UINT64_MAX);
  EXPECT_THAT(request.stop(), ElementsAre("a", "b"));
  EXPECT_THAT(request.stop_ids(), ElementsAre(7));
  EXPECT_TRUE(request.ignore_eos());
  EXPECT_EQ(request.speculation().mode(), v1::SPECULATION_MODE_CHAIN);
  EXPECT_EQ(request.speculation().tree_nodes(), 9);
  EXPECT_TRUE(flags->json);
}

TEST(GenerateFlagsTest, WhatIsNotGivenStaysUnset) {
  const auto flags = Parse({"--token-ids", "1,2,3"});
  ASSERT_TRUE(flags.ok());
  EXPECT_THAT(flags->request.token_ids().ids(), ElementsAre(1, 2, 3));
  EXPECT_FALSE(flags->request.has_temperature());
  EXPECT_FALSE(flags->request.has_seed());
  EXPECT_FALSE(flags->request.has_max_tokens());
}

TEST(GenerateFlagsTest, AFileIsThePromptWithEveryByteOfIt) {
  const std::string path = ::testing::TempDir() + "/prompt.txt";
  std::ofstream(path) << "line\n\n";
  EXPECT_EQ(Parse({"--prompt-file", path.c_str()})->request.text(), "line\n\n");
}

TEST(GenerateFlagsTest, ChatMakesMessages) {
  const auto flags = Parse({"--chat", "--system", "be brief", "--prompt", "hi"});
  ASSERT_TRUE(flags.ok());
  ASSERT_EQ(flags->request.chat().messages_size(), 2);
  EXPECT_EQ(flags->request.chat().messages(0).role(), "system");
  EXPECT_EQ(flags->request.chat().messages(1).content(), "hi");
}

TEST(GenerateFlagsTest, EveryControlReachesItsField) {
  const auto flags = Parse({"--prompt",
                            "x",
                            "--min-tokens",
                            "2",
                            "--repetition-penalty",
                            "1.5",
                            "--presence-penalty",
                            "-0.5",
                            "--frequency-penalty=0.25",
                            "--logit-bias",
                            "7:-2.5",
                            "--logit-bias",
                            "8:100",
                            "--allowed-ids",
                            "1,2",
                            "--allowed-ids",
                            "3",
                            "--bad-word",
                            "foo",
                            "--bad-word",
                            "--bar",
                            "--n",
                            "3",
                            "--log-probs",
                            "--top-log-probs",
                            "5",
                            "--prompt-log-probs",
                            "--echo",
                            "--regex",
                            "[a-z]+",
                            "--priority",
                            "-7",
                            "--request-timeout",
                            "1500ms",
                            "--model",
                            "m",
                            "--client-request-id",
                            "mine"});
  ASSERT_TRUE(flags.ok()) << flags.status();
  v1::GenerateRequest expected;
  ASSERT_TRUE(google::protobuf::TextFormat::ParseFromString(
      R"(text: "x" min_tokens: 2 repetition_penalty: 1.5 presence_penalty: -0.5 frequency_penalty: 0.25
         logit_bias { token_id: 7 bias: -2.5 } logit_bias { token_id: 8 bias: 100 }
         allowed_token_ids: [1, 2, 3] bad_words: "foo" bad_words: "--bar" n: 3 log_probs: true
         top_log_probs: 5 prompt_log_probs: true echo: true regex: "[a-z]+" priority: -7
         timeout { seconds: 1 nanos: 500000000 } model: "m" client_request_id: "mine")",
      &expected));
  EXPECT_EQ(flags->request.DebugString(), expected.DebugString());
}

// A field without a flag would be one that `arborist generate` cannot ask for.
TEST(GenerateFlagsTest, NoFieldOfARequestIsWithoutAFlag) {
  const std::string medium = Written("medium.png", "\x89PNG");
  const std::string media = "image/png:" + medium;
  std::set<std::string> reached;
  for (const std::vector<const char*>& words :
       std::vector<std::vector<const char*>>{{"--prompt", "x", "--json-schema", "{}"},
                                             {"--token-ids", "1", "--regex", "a"},
                                             {"--message",
                                              "user:x",
                                              "--max-tokens",
                                              "1",
                                              "--min-tokens",
                                              "1",
                                              "--temperature",
                                              "1",
                                              "--top-k",
                                              "1",
                                              "--top-p",
                                              "0.5",
                                              "--min-p",
                                              "0.5",
                                              "--seed",
                                              "1",
                                              "--repetition-penalty",
                                              "2",
                                              "--presence-penalty",
                                              "1",
                                              "--frequency-penalty",
                                              "1",
                                              "--logit-bias",
                                              "1:1",
                                              "--allowed-ids",
                                              "1",
                                              "--bad-word",
                                              "x",
                                              "--stop",
                                              "x",
                                              "--stop-id",
                                              "1",
                                              "--ignore-eos",
                                              "--n",
                                              "2",
                                              "--log-probs",
                                              "--top-log-probs",
                                              "1",
                                              "--prompt-log-probs",
                                              "--echo",
                                              "--priority",
                                              "1",
                                              "--request-timeout",
                                              "1s",
                                              "--speculation",
                                              "off",
                                              "--model",
                                              "x",
                                              "--client-request-id",
                                              "x",
                                              "--media",
                                              media.c_str()}}) {
    const auto flags = Parse(words);
    ASSERT_TRUE(flags.ok()) << flags.status();
    std::vector<const google::protobuf::FieldDescriptor*> fields;
    flags->request.GetReflection()->ListFields(flags->request, &fields);
    for (const auto* field : fields) {
      reached.insert(field->name());
    }
  }
  const google::protobuf::Descriptor& request = *v1::GenerateRequest::descriptor();
  for (int i = 0; i < request.field_count(); ++i) {
    EXPECT_TRUE(reached.contains(request.field(i)->name())) << request.field(i)->name();
  }
}

TEST(GenerateFlagsTest, ASchemaMayStandInAFile) {
  const std::string path = Written("schema.json", "{\"type\": \"string\"}\n");
  EXPECT_EQ(Parse({"--prompt", "x", "--json-schema-file", path.c_str()})->request.json_schema(),
            "{\"type\": \"string\"}\n");
}

TEST(GenerateFlagsTest, MessagesAreTheTurnsOfAConversation) {
  const auto flags = Parse({"--message", "user:a: b", "--message", "assistant:", "--message", "user:c",
                            "--omit-generation-prompt"});
  ASSERT_TRUE(flags.ok()) << flags.status();
  ASSERT_EQ(flags->request.chat().messages_size(), 3);
  EXPECT_EQ(flags->request.chat().messages(0).role(), "user");
  EXPECT_EQ(flags->request.chat().messages(0).content(), "a: b");
  EXPECT_EQ(flags->request.chat().messages(1).content(), "");
  EXPECT_TRUE(flags->request.chat().omit_generation_prompt());
}

TEST(GenerateFlagsTest, MistakesInControlsNameTheFlagItsValueAndWhatIsExpected) {
  const auto mistake = [](std::vector<const char*> words) {
    words.insert(words.begin(), {"--prompt", "a"});
    return Mistake(std::move(words));
  };
  EXPECT_EQ(mistake({"--logit-bias", "7"}), "--logit-bias=7, expected an id and a number, such as 17:-2.5");
  EXPECT_THAT(mistake({"--logit-bias", "x:1"}), HasSubstr("--logit-bias=x:1, expected an id"));
  EXPECT_THAT(mistake({"--logit-bias", "7:much"}), HasSubstr("--logit-bias=7:much"));
  EXPECT_EQ(mistake({"--allowed-ids", "1,,2"}), "--allowed-ids has , expected integers and commas");
  EXPECT_THAT(mistake({"--n", "two"}), HasSubstr("--n=two, expected an integer in ["));
  EXPECT_THAT(mistake({"--n", "3000000000"}), HasSubstr("--n=3000000000, expected an integer in ["));
  EXPECT_EQ(mistake({"--presence-penalty", "low"}), "--presence-penalty=low, expected a number");
  EXPECT_THAT(mistake({"--log-probs=yes"}), HasSubstr("--log-probs without a value"));
  EXPECT_THAT(mistake({"--request-timeout", "-1s"}), HasSubstr("--request-timeout=-1s, expected a duration"));
  EXPECT_THAT(mistake({"--bad-word", "\xC3"}), HasSubstr("--bad-word has a byte at 0 that is not UTF-8"));
  EXPECT_THAT(mistake({"--regex", "a\xFF"}), HasSubstr("--regex has a byte at 1 that is not UTF-8"));
  EXPECT_THAT(mistake({"--regex", "a", "--json-schema", "{}"}),
              HasSubstr("--json-schema beside another one, expected at most one of"));
  EXPECT_THAT(mistake({"--json-schema-file", "/nonexistent"}),
              HasSubstr("--json-schema-file=/nonexistent, expected a file"));
  EXPECT_THAT(mistake({"--media", "image/png"}),
              HasSubstr("--media=image/png, expected a MIME type and a file"));
  EXPECT_THAT(mistake({"--message", "user:b"}), HasSubstr("exactly one of"));
  EXPECT_THAT(mistake({"--omit-generation-prompt"}), HasSubstr("expected --chat or --message"));
  EXPECT_THAT(Mistake({"--message", "hello"}), HasSubstr("--message=hello, expected a role and its text"));
  EXPECT_THAT(Mistake({"--message", ":hello"}), HasSubstr("--message=:hello"));
}

TEST(GenerateFlagsTest, MistakesNameTheFlag) {
  EXPECT_THAT(Mistake({}), HasSubstr("exactly one of --prompt"));
  EXPECT_THAT(Mistake({"--prompt", "a", "--token-ids", "1"}), HasSubstr("exactly one of"));
  EXPECT_THAT(Mistake({"--token-ids", "1,x"}), HasSubstr("--token-ids has x"));
  EXPECT_THAT(Mistake({"--prompt", "a", "--temperature", "hot"}), HasSubstr("--temperature=hot"));
  EXPECT_THAT(Mistake({"--prompt", "a", "--seed", "-1"}), HasSubstr("--seed=-1"));
  EXPECT_THAT(Mistake({"--prompt", "a", "--speculation", "fast"}), HasSubstr("--speculation=fast"));
  EXPECT_THAT(Mistake({"--prompt", "a", "--timeout", "soon"}), HasSubstr("--timeout=soon"));
  EXPECT_THAT(Mistake({"--prompt", "\xff"}), HasSubstr("--prompt has a byte at 0 that is not UTF-8"));
  EXPECT_THAT(Mistake({"--prompt-file", "/nonexistent"}), HasSubstr("--prompt-file=/nonexistent"));
  EXPECT_THAT(Mistake({"--prompt", "a", "--system", "b"}), HasSubstr("--system"));
  EXPECT_THAT(Mistake({"--chat", "--token-ids", "1"}), HasSubstr("--chat"));
  EXPECT_THAT(Mistake({"--bogus"}), HasSubstr("--bogus"));
}

}  // namespace
}  // namespace arborist::coordinator
