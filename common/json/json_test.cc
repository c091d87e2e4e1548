#include "common/json/json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace arborist {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

JsonObject Parse(const std::string& text) {
  absl::StatusOr<JsonObject> object = ParseJson(text, "here.json");
  EXPECT_TRUE(object.ok()) << object.status();
  return object.ok() ? *object : JsonObject({}, "failed");
}

TEST(Json, ReadsEveryKind) {
  const JsonObject json = Parse(
      R"({"i": 9007199254740991, "n": 1e-05, "b": true, "s": "x", "o": {"k": 2}, "l": [1, -2], "t": ["a"], "z": null})");
  EXPECT_EQ(*json.Int("i"), 9007199254740991);
  EXPECT_EQ(*json.Number("n"), 1e-5);
  EXPECT_EQ(*json.Bool("b"), true);
  EXPECT_EQ(*json.String("s"), "x");
  EXPECT_EQ(*json.Object("o")->Int("k"), 2);
  EXPECT_THAT(*json.IntList("l"), ElementsAre(1, -2));
  EXPECT_THAT(*json.StringList("t"), ElementsAre("a"));
  EXPECT_TRUE(json.Contains("z"));
  EXPECT_FALSE(json.Has("z"));
}

TEST(Json, FallbacksStandForMissingAndNullOnly) {
  const JsonObject json = Parse(R"({"z": null, "s": "x"})");
  EXPECT_EQ(*json.IntOr("z", 7), 7);
  EXPECT_EQ(*json.NumberOr("none", 0.5), 0.5);
  EXPECT_FALSE(json.IntOr("s", 7).ok());
  EXPECT_FALSE(json.BoolOr("s", true).ok());
}

TEST(Json, ErrorsNamePlaceKeyValueAndExpectation) {
  const JsonObject json = Parse(R"({"i": 1.5, "o": {"k": [1, "x"]}})");
  EXPECT_EQ(json.Int("i").status().message(), "here.json: i=1.5, expected an integer");
  EXPECT_EQ(json.Bool("b").status().message(), "here.json: b=missing, expected true or false");
  EXPECT_THAT(std::string(json.Object("o")->IntList("k").status().message()),
              HasSubstr("here.json: o: k=[1,\"x\"], expected a list of integers"));
}

TEST(Json, RefusesIntegersThatADoubleCannotHold) {
  EXPECT_FALSE(Parse(R"({"i": 1e300})").Int("i").ok());
  EXPECT_FALSE(Parse(R"({"i": 9007199254740994})").Int("i").ok());
}

TEST(Json, RefusesWhatIsNotOneObject) {
  for (const char* text :
       {"", "[1]", "{\"a\": 1", "{\"a\": 1} x", "{\"a\": 1, \"a\": 2}", "{\"a\": 1e999}", "\xff\xfe"}) {
    const absl::StatusOr<JsonObject> json = ParseJson(text, "bad.json");
    EXPECT_FALSE(json.ok()) << text;
    EXPECT_THAT(std::string(json.status().message()), HasSubstr("bad.json")) << text;
    EXPECT_THAT(std::string(json.status().message()), Not(HasSubstr("\n"))) << text;
  }
  std::string deep = "{\"a\":";
  for (int i = 0; i < 10000; ++i) {
    deep += "[";
  }
  EXPECT_FALSE(ParseJson(deep, "deep.json").ok());
  EXPECT_FALSE(ReadJson("/nonexistent/config.json").ok());
}

}  // namespace
}  // namespace arborist
