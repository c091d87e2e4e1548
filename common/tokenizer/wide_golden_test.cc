// Three tokenizers against Hugging Face on more than 5,000 strings
// (tests/golden/make_tokenizer_wide_golden.py).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>

#include "absl/strings/escaping.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "common/base/utf8.h"
#include "common/json/json.h"
#include "common/tokenizer/pattern.h"
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

// The characters of one run-length list, from the lowest on.
std::vector<uint32_t> Characters(const Value& runs) {
  std::vector<uint32_t> out;
  uint32_t next = 0;
  bool inside = false;
  for (const Value& run : runs.list_value().values()) {
    for (uint32_t end = next + static_cast<uint32_t>(run.number_value()); next < end; ++next) {
      if (inside) {
        out.push_back(next);
      }
    }
    inside = !inside;
  }
  return out;
}

TEST(CharacterClassGoldenTest, EveryCharacterIsOfTheSameClassesAsForHuggingFace) {
  const auto json = ReadJson(Wide("classes.json"));
  ASSERT_TRUE(json.ok()) << json.status();
  const std::vector<uint32_t> known = Characters(json->fields().fields().at("known"));
  EXPECT_GT(known.size(), 280'000u);
  std::string text;
  for (const uint32_t character : known) {
    AppendUtf8(character, text);
  }
  for (const auto& [name, runs] : json->fields().fields()) {
    if (name == "known") {
      continue;
    }
    const auto pattern = Pattern::Compile(name, false);
    ASSERT_TRUE(pattern.ok()) << pattern.status();
    Matcher matcher(*pattern);
    std::vector<ByteRange> matches;
    ASSERT_TRUE(matcher.FindAll(text, matches).ok());
    std::vector<uint32_t> got;
    for (const ByteRange& match : matches) {
      got.push_back(NextUtf8(std::string_view(text).substr(match.begin)).character);
    }
    const std::vector<uint32_t> expected = Characters(runs);
    const auto differs = std::mismatch(got.begin(), got.end(), expected.begin(), expected.end());
    EXPECT_TRUE(got == expected) << name << ": from U+" << std::hex
                                 << (differs.first == got.end() ? 0x110000 : *differs.first) << " or U+"
                                 << (differs.second == expected.end() ? 0x110000 : *differs.second) << " on";
  }
}

INSTANTIATE_TEST_SUITE_P(Tokenizers, WideGoldenTest, ::testing::Values("shipped", "nfc", "steps"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace arborist
