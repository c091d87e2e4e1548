// What Hugging Face tokenizers makes of the same texts (tests/golden/make_tokenizer_golden.py).
#include <google/protobuf/util/json_util.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <sstream>

#include "common/json/json.h"
#include "common/tokenizer/tokenizer.h"

namespace arborist {
namespace {

using google::protobuf::ListValue;
using google::protobuf::Struct;
using google::protobuf::Value;

std::string GoldenDirectory() {
  return std::string(std::getenv("ARBORIST_SOURCE_DIR")) + "/tests/golden/tokenizer";
}

std::vector<int32_t> Ids(const Value& list) {
  std::vector<int32_t> out;
  for (const Value& value : list.list_value().values()) {
    out.push_back(static_cast<int32_t>(value.number_value()));
  }
  return out;
}

std::vector<int32_t> Encoded(const Tokenizer& tokenizer, const std::string& text, SpecialText special) {
  const auto ids = tokenizer.Encode(text, special);
  EXPECT_TRUE(ids.ok()) << ids.status();
  std::vector<int32_t> out;
  for (const TokenId id : ids.value_or(std::vector<TokenId>())) {
    out.push_back(Raw(id));
  }
  return out;
}

// The tokenizer of one group of cases: the base with the group's own parts.
Tokenizer Variant(const Struct& base, const Struct& group) {
  Struct json = base;
  (*json.mutable_fields())["pre_tokenizer"] = group.fields().at("pre_tokenizer");
  Struct& model = *(*json.mutable_fields())["model"].mutable_struct_value();
  (*model.mutable_fields())["ignore_merges"] = group.fields().at("ignore_merges");
  for (const Value& token : group.fields().at("added_tokens").list_value().values()) {
    *(*json.mutable_fields())["added_tokens"].mutable_list_value()->add_values() = token;
  }
  std::string text;
  EXPECT_TRUE(google::protobuf::util::MessageToJsonString(json, &text).ok());
  auto tokenizer = Tokenizer::Parse(text, "", "golden");
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status();
  return *std::move(tokenizer);
}

TEST(TokenizerGoldenTest, IdsEqualHuggingFaceForEveryTextAndVariant) {
  const auto base = ReadJson(GoldenDirectory() + "/tokenizer.json");
  const auto cases = ReadJson(GoldenDirectory() + "/cases.json");
  ASSERT_TRUE(base.ok() && cases.ok()) << base.status() << cases.status();
  int compared = 0;
  for (const Value& value : cases->fields().fields().at("groups").list_value().values()) {
    const Struct& group = value.struct_value();
    const Tokenizer tokenizer = Variant(base->fields(), group);
    for (const Value& entry : group.fields().at("cases").list_value().values()) {
      const ListValue& one = entry.list_value();
      const std::string& text = one.values(0).string_value();
      const std::string where = group.fields().at("name").string_value() + ": " + text;
      ASSERT_EQ(Encoded(tokenizer, text, SpecialText::kAsToken), Ids(one.values(1))) << where;
      ASSERT_EQ(Encoded(tokenizer, text, SpecialText::kAsText), Ids(one.values(one.values_size() - 1)))
          << where;
      ++compared;
    }
  }
  EXPECT_GE(compared, 900);
}

TEST(TokenizerGoldenTest, TextOfBrokenSequencesEqualsHuggingFace) {
  const auto tokenizer = Tokenizer::Load(GoldenDirectory());
  const auto cases = ReadJson(GoldenDirectory() + "/cases.json");
  ASSERT_TRUE(tokenizer.ok() && cases.ok());
  const ListValue& decode = cases->fields().fields().at("decode").list_value();
  EXPECT_GE(decode.values_size(), 50);
  for (const Value& entry : decode.values()) {
    std::vector<TokenId> ids;
    for (const int32_t id : Ids(entry.list_value().values(0))) {
      ids.push_back(TokenId{id});
    }
    EXPECT_EQ(tokenizer->Decode(ids, false), entry.list_value().values(1).string_value());
    EXPECT_EQ(tokenizer->Decode(ids, true), entry.list_value().values(2).string_value());
  }
}

TEST(TokenizerGoldenTest, EncodedTextDecodesToItself) {
  const auto tokenizer = Tokenizer::Load(GoldenDirectory());
  const auto cases = ReadJson(GoldenDirectory() + "/cases.json");
  ASSERT_TRUE(tokenizer.ok() && cases.ok());
  const Value& group = cases->fields().fields().at("groups").list_value().values(0);
  for (const Value& entry : group.struct_value().fields().at("cases").list_value().values()) {
    const std::string& text = entry.list_value().values(0).string_value();
    const auto ids = tokenizer->Encode(text, SpecialText::kAsToken);
    ASSERT_TRUE(ids.ok());
    EXPECT_EQ(tokenizer->Decode(*ids, false), text);
  }
}

}  // namespace
}  // namespace arborist
