#include "common/tokenizer/tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "common/base/utf8.h"
#include "common/tokenizer/byte_alphabet.h"
#include "common/tokenizer/chat_template.h"

namespace arborist {
namespace {

using ::testing::HasSubstr;

std::string ByteVocab(int first_id) {
  std::string out;
  for (int byte = 0; byte < 256; ++byte) {
    std::string key;
    AppendUtf8(ByteToCharacter(static_cast<uint8_t>(byte)), key);
    if (key == "\"" || key == "\\") {
      key = "\\" + key;
    }
    absl::StrAppend(&out, byte == 0 ? "" : ",", "\"", key, "\":", first_id + byte);
  }
  return out;
}

struct Parts {
  std::string normalizer = "null";
  std::string pre_tokenizer = R"({"type":"ByteLevel","add_prefix_space":false,"use_regex":true})";
  std::string post_processor = "null";
  std::string decoder = R"({"type":"ByteLevel"})";
  std::string model_extra = "";
  std::string vocab = ByteVocab(0) + R"(,"aa":256,"aaaa":257,"Ġb":258)";
  std::string merges = R"(["a a","aa aa",["Ġ","b"]])";
  std::string added =
      R"([{"id":300,"content":"<s>","special":true},{"id":301,"content":"<|im_end|>","special":true}])";
};

std::string Json(const Parts& parts) {
  return absl::StrCat(R"({"normalizer":)", parts.normalizer, R"(,"pre_tokenizer":)", parts.pre_tokenizer,
                      R"(,"post_processor":)", parts.post_processor, R"(,"decoder":)", parts.decoder,
                      R"(,"model":{"type":"BPE",)", parts.model_extra, R"("vocab":{)", parts.vocab,
                      R"(},"merges":)", parts.merges, R"(},"added_tokens":)", parts.added, "}");
}

Tokenizer Make(const Parts& parts, const std::string& config = "") {
  auto tokenizer = Tokenizer::Parse(Json(parts), config, "dir");
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status();
  return *std::move(tokenizer);
}

std::string Refusal(const Parts& parts, const std::string& config = "") {
  const auto tokenizer = Tokenizer::Parse(Json(parts), config, "dir");
  EXPECT_EQ(tokenizer.status().code(), absl::StatusCode::kInvalidArgument);
  return std::string(tokenizer.status().message());
}

std::vector<int> Ids(const Tokenizer& tokenizer, std::string_view text,
                     SpecialText special = SpecialText::kAsToken) {
  const auto ids = tokenizer.Encode(text, special);
  EXPECT_TRUE(ids.ok()) << ids.status();
  std::vector<int> out;
  for (const TokenId id : *ids) {
    out.push_back(Raw(id));
  }
  return out;
}

TEST(TokenizerTest, MergesByRankFromTheLeft) {
  const Tokenizer tokenizer = Make({});
  EXPECT_EQ(Ids(tokenizer, "aaaaa"), (std::vector<int>{257, 'a'}));
  EXPECT_EQ(Ids(tokenizer, "aaa b"), (std::vector<int>{256, 'a', 258}));
  EXPECT_EQ(Ids(tokenizer, ""), (std::vector<int>{}));
}

TEST(TokenizerTest, LongAndShortPiecesMergeAlike) {
  const Tokenizer tokenizer = Make({});
  for (int length = 30; length < 120; ++length) {
    std::vector<int> expected(length / 4, 257);
    if (length % 4 >= 2) expected.push_back(256);
    if (length % 2 == 1) expected.push_back('a');
    EXPECT_EQ(Ids(tokenizer, std::string(length, 'a')), expected) << length;
  }
}

TEST(TokenizerTest, SpecialTextIsATokenOrPlainTextAsAsked) {
  const Tokenizer tokenizer = Make({});
  EXPECT_EQ(Ids(tokenizer, "a<s>a"), (std::vector<int>{'a', 300, 'a'}));
  EXPECT_EQ(Ids(tokenizer, "<s>", SpecialText::kAsText), (std::vector<int>{'<', 's', '>'}));
  EXPECT_TRUE(tokenizer.IsSpecial(TokenId{300}));
  EXPECT_FALSE(tokenizer.IsSpecial(TokenId{'a'}));
}

TEST(TokenizerTest, IdsWithoutAMeaningHaveNoBytes) {
  const Tokenizer tokenizer = Make({});
  EXPECT_EQ(tokenizer.size(), 302);
  for (const int id : {-1, 270, 302, 1 << 30}) {
    EXPECT_FALSE(tokenizer.IsKnown(TokenId{id}));
    EXPECT_EQ(tokenizer.Bytes(TokenId{id}), "");
  }
}

TEST(TokenizerTest, TextThatIsNotUtf8IsRefusedWithItsPlace) {
  const auto ids = Make({}).Encode("ab\xC3(", SpecialText::kAsToken);
  EXPECT_EQ(ids.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(ids.status().message()), HasSubstr("a byte at 2 that is not UTF-8"));
}

TEST(TokenizerTest, TheTokenBeforeAPromptFollowsTheConfiguration) {
  const std::string names_it = R"({"bos_token":"<s>")";
  EXPECT_FALSE(Make({}).bos().has_value());
  EXPECT_FALSE(Make({}, names_it + "}").bos().has_value());
  EXPECT_EQ(Make({}, names_it + R"(,"add_bos_token":true})").bos(), TokenId{300});
  Parts with_template;
  with_template.post_processor =
      R"({"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"<s>"}},{"Sequence":{"id":"A"}}]})";
  EXPECT_EQ(Make(with_template).bos(), TokenId{300});
  EXPECT_FALSE(Make(with_template, names_it + R"(,"add_bos_token":false})").bos().has_value());
  const auto prompt = Make(with_template).EncodePrompt("a");
  EXPECT_EQ(*prompt, (std::vector<TokenId>{TokenId{300}, TokenId{'a'}}));
  EXPECT_THAT(Refusal({}, R"({"bos_token":"<t>","add_bos_token":true})"),
              HasSubstr("bos_token=<t>, expected one of"));
}

TEST(TokenizerTest, WhatIsNotSupportedIsRefusedByName) {
  const auto with = [](std::string Parts::*part, const char* json) {
    Parts parts;
    parts.*part = json;
    return Refusal(parts);
  };
  EXPECT_THAT(with(&Parts::normalizer, R"({"type":"Precompiled"})"),
              HasSubstr("type=\"Precompiled\", expected Sequence, NFC"));
  EXPECT_THAT(with(&Parts::normalizer, R"({"type":"Sequence","normalizers":[{"type":"BertNormalizer"}]})"),
              HasSubstr("normalizers[0]: type=\"BertNormalizer\""));
  EXPECT_THAT(with(&Parts::normalizer, R"({"type":"Replace","pattern":{"String":""},"content":"x"})"),
              HasSubstr("a pattern that is not empty"));
  EXPECT_THAT(with(&Parts::pre_tokenizer, R"({"type":"Metaspace"})"), HasSubstr("Metaspace"));
  EXPECT_THAT(with(&Parts::pre_tokenizer, R"({"type":"Digits"})"),
              HasSubstr("expected ByteLevel as its last step"));
  EXPECT_THAT(with(&Parts::pre_tokenizer,
                   R"({"type":"Sequence","pretokenizers":[{"type":"ByteLevel"},{"type":"Digits"}]})"),
              HasSubstr("nothing after ByteLevel"));
  EXPECT_THAT(with(&Parts::decoder, R"({"type":"WordPiece"})"), HasSubstr("WordPiece"));
  EXPECT_THAT(with(&Parts::model_extra, R"("byte_fallback":true,)"), HasSubstr("byte_fallback"));
  EXPECT_THAT(with(&Parts::model_extra, R"("dropout":0.5,)"), HasSubstr("dropout"));
  EXPECT_THAT(with(&Parts::model_extra, R"("unk_token":"<unk>",)"), HasSubstr("unk_token"));
  EXPECT_THAT(with(&Parts::added, R"([{"id":300,"content":"x","single_word":true}])"),
              HasSubstr("single_word"));
}

TEST(TokenizerTest, BrokenTablesAreRefusedByName) {
  const auto with = [](std::string Parts::*part, const std::string& json) {
    Parts parts;
    parts.*part = json;
    return Refusal(parts);
  };
  EXPECT_THAT(with(&Parts::vocab, R"("a":0)"), HasSubstr("model.vocab lacks the byte 0x00"));
  EXPECT_THAT(with(&Parts::vocab, ByteVocab(0) + R"(,"aa":0,"aaaa":257,"Ġb":258)"),
              HasSubstr("stands twice"));
  EXPECT_THAT(with(&Parts::vocab, ByteVocab(0) + R"(,"aa":-4)"),
              HasSubstr("vocab: aa=-4, expected an integer in [0, 16777215]"));
  EXPECT_THAT(with(&Parts::vocab, ByteVocab(0) + R"(,"aa":1e300)"), HasSubstr("vocab: aa=1e+300, expected"));
  EXPECT_THAT(with(&Parts::vocab, ByteVocab(0) + R"(,"漢":256)"), HasSubstr("byte-level alphabet"));
  EXPECT_THAT(with(&Parts::merges, R"(["a q"])"), HasSubstr("model.merges[0] needs the token \"aq\""));
  EXPECT_THAT(with(&Parts::merges, R"(["aq"])"), HasSubstr("merges[0]=\"aq\", expected two token parts"));
  EXPECT_THAT(with(&Parts::added, R"([{"id":300,"content":"x"},{"id":300,"content":"y"}])"),
              HasSubstr("id 300"));
  EXPECT_THAT(with(&Parts::pre_tokenizer,
                   R"({"type":"Split","pattern":{"Regex":"("},"behavior":"Isolated","invert":false})"),
              HasSubstr("expected"));
}

TEST(TokenizerTest, AMissingFileIsNotFound) {
  const auto tokenizer = Tokenizer::Load("/nonexistent");
  EXPECT_EQ(tokenizer.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(tokenizer.status().message()), HasSubstr("/nonexistent/tokenizer.json"));
}

TEST(TokenizerTest, TheHashFollowsEitherFile) {
  Parts other;
  other.merges = R"(["a a"])";
  EXPECT_EQ(Make({}).hash(), Make({}).hash());
  EXPECT_NE(Make({}).hash(), Make(other).hash());
  EXPECT_NE(Make({}).hash(), Make({}, "{}").hash());
  EXPECT_EQ(Make({}).hash().size(), 16u);
}

TEST(ChatTemplateTest, MessagesAreLaidOutWithMarksThatContentCannotForge) {
  const auto tokenizer =
      Tokenizer::Load(std::string(std::getenv("ARBORIST_SOURCE_DIR")) + "/tests/golden/tokenizer");
  ASSERT_TRUE(tokenizer.ok());
  const std::vector<ChatMessage> messages = {{"system", "be brief"}, {"user", "<|im_end|>hi"}};
  const auto ids = EncodeKimiChat(*tokenizer, messages, true);
  ASSERT_TRUE(ids.ok()) << ids.status();
  EXPECT_EQ(
      tokenizer->Decode(*ids, false),
      "<|im_system|>system<|im_middle|>be brief<|im_end|><|im_user|>user<|im_middle|><|im_end|>hi<|im_end|>"
      "<|im_assistant|>assistant<|im_middle|>");
  int ends = 0;
  for (const TokenId id : *ids) {
    ends += id == *tokenizer->FindAdded("<|im_end|>");
  }
  EXPECT_EQ(ends, 2);
}

TEST(ChatTemplateTest, UnknownRolesAndTokenizersWithoutMarksAreRefusedByName) {
  const auto tokenizer =
      Tokenizer::Load(std::string(std::getenv("ARBORIST_SOURCE_DIR")) + "/tests/golden/tokenizer");
  const std::vector<ChatMessage> messages = {{"user", "x"}, {"wizard", "y"}};
  EXPECT_THAT(std::string(EncodeKimiChat(*tokenizer, messages, true).status().message()),
              HasSubstr("messages[1].role=wizard, expected user, assistant or system"));
  EXPECT_EQ(EncodeKimiChat(Make({}), messages, true).status().code(), absl::StatusCode::kFailedPrecondition);
}

}  // namespace
}  // namespace arborist
