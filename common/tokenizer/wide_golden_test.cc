// Three tokenizers against Hugging Face on more than 5,000 strings
// (tests/golden/make_tokenizer_wide_golden.py).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>

#include "absl/strings/escaping.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "common/json/json.h"
#include "common/tokenizer/tokenizer.h"

namespace arborist {
namespace {

using google::protobuf::ListValue;
using google::protobuf::Value;

std::string Source() { return std::getenv("ARBORIST_SOURCE_DIR"); }
std::string Wide(const std::string& name) { return Source() + "/tests/golden/tokenizer/wide/" + name; }

ListValue List(const std::string& file, const std::string& key) {
  const auto json = ReadJson(Wide(file));
  EXPECT_TRUE(json.ok()) << json.status();
  return json->fields().fields().at(key).list_value();
}

std::string Spelled(const absl::StatusOr<std::vector<TokenId>>& ids) {
  if (!ids.ok()) {
    return std::string(ids.status().message());
  }
  return absl::StrJoin(*ids, " ", [](std::string* out, TokenId id) { absl::StrAppend(out, Raw(id)); });
}

class WideGoldenTest : public ::testing::TestWithParam<const char*> {
 protected:
  Tokenizer Loaded() const {
    const std::string name = GetParam();
    auto tokenizer =
        Tokenizer::Load(name == "shipped" ? Source() + "/deploy/models/arborist-tiny/target" : Wide(name));
    EXPECT_TRUE(tokenizer.ok()) << tokenizer.status();
    return *std::move(tokenizer);
  }
};

TEST_P(WideGoldenTest, IdsEqualHuggingFaceForEveryString) {
  const Tokenizer tokenizer = Loaded();
  const ListValue texts = List("texts.json", "texts");
  std::ifstream lines(Wide(std::string(GetParam()) + ".ids"));
  int wrong = 0;
  for (const Value& value : texts.values()) {
    const std::string& text = value.string_value();
    std::string line;
    ASSERT_TRUE(std::getline(lines, line));
    // "ids" or "ids|ids with special tokens as plain text", where those differ.
    const std::vector<std::string> expected = absl::StrSplit(line, '|');
    for (const SpecialText special : {SpecialText::kAsToken, SpecialText::kAsText}) {
      const std::string got = Spelled(tokenizer.Encode(text, special));
      const std::string& want = special == SpecialText::kAsToken ? expected.front() : expected.back();
      if (got != want && ++wrong <= 20) {
        ADD_FAILURE() << "\"" << text << "\" = " << absl::CHexEscape(text) << "\nexpected " << want
                      << "\ngot      " << got;
      }
    }
  }
  EXPECT_EQ(wrong, 0);
  EXPECT_GE(texts.values_size(), 5000);
}

TEST_P(WideGoldenTest, TextOfAnyIdsEqualsHuggingFace) {
  const Tokenizer tokenizer = Loaded();
  const ListValue cases = List(std::string(GetParam()) + ".decode.json", "decode");
  for (const Value& entry : cases.values()) {
    std::vector<TokenId> ids;
    for (const Value& id : entry.list_value().values(0).list_value().values()) {
      ids.push_back(TokenId{static_cast<int32_t>(id.number_value())});
    }
    EXPECT_EQ(tokenizer.Decode(ids, false), entry.list_value().values(1).string_value()) << Spelled(ids);
    EXPECT_EQ(tokenizer.Decode(ids, true), entry.list_value().values(2).string_value()) << Spelled(ids);
  }
}

INSTANTIATE_TEST_SUITE_P(Tokenizers, WideGoldenTest, ::testing::Values("shipped", "nfc", "steps"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace arborist
