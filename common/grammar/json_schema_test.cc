#include "common/grammar/json_schema.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <random>

#include "common/grammar/constraint.h"
#include "common/grammar/json_text.h"
#include "common/grammar/json_value.h"
#include "common/grammar/testing/schema_checker.h"
#include "common/grammar/testing/walks.h"

namespace arborist {
namespace {

using ::testing::HasSubstr;

absl::StatusOr<std::shared_ptr<const Constraint>> Compile(const std::string& schema) {
  ConstraintSpec spec;
  spec.json_schema = schema;
  spec.stop_ids = {testing::TestStop()};
  return Constraint::Compile(spec, testing::TestVocabulary());
}

struct Case {
  std::string schema;
  std::vector<std::string> fitting;
  std::vector<std::string> others;
};

const std::vector<Case>& Cases() {
  static const std::vector<Case> cases = {
      {R"({})",
       {"1", "[1, {\"a\":null}]", "{}", "[]", "\"x\"", "{\n  \"a\": [\n    true\n  ]\n}"},
       {"", "nul", "[1,]", "{]"}},
      {R"(true)", {"null"}, {"  null"}},
      {R"({"type": "string"})",
       {R"("")",
        R"("a\"\\\/\n\u00e9\ud83d\ude00)"
        "\xC3\xA9\"",
        "\"\x7F\""},
       {"\"", "\"a\nb\"", R"("\x")", R"("\ud83d")", R"("\ude00")", "\"\xFF\"", "1", R"("\ud83d\u0041")"}},
      {R"({"type": "integer"})",
       {"0", "-12", "123456789012345678"},
       {"01", "1.0", "1e3", "--1", "1234567890123456789"}},
      {R"({"type": "number"})", {"0", "-0.5", "1e5", "12.25E-10"}, {".5", "1.", "1e", "1e123", "+1"}},
      {R"({"type": ["null", "boolean"]})", {"null", "true", "false"}, {"True", "0"}},
      {R"({"type": "integer", "minimum": -17, "maximum": 205})",
       {"-17", "-1", "0", "9", "99", "100", "205"},
       {"-18", "206", "-0", "1000", "00"}},
      {R"({"type": "integer", "exclusiveMinimum": 0})",
       {"1", "10", "999999999999999999"},
       {"0", "-1", "1.5"}},
      {R"({"type": "integer", "minimum": -999999999999999999, "maximum": 999999999999999999})",
       {"0", "-999999999999999999", "999999999999999999", "123456789012345678"},
       {"1000000000000000000", "-1000000000000000000", "-0"}},
      {R"({"type": "number", "minimum": -2, "maximum": 10})",
       {"-2", "-1.999", "-0.5", "0.25", "10", "9.99"},
       {"-2.1", "10.0", "11", "1e1"}},
      {R"({"type": "string", "minLength": 2, "maxLength": 3})",
       {R"("ab")", "\"\xE4\xBD\xA0\xE5\xA5\xBD!\"", R"("\u0041\n")"},
       {R"("a")", R"("abcd")"}},
      {R"({"type": "string", "pattern": "^[a-c]+\"\\n?$"})",
       {R"("ab\"")", R"("ab\"\n")"},
       {R"("ab")", "\"ab\"\n\""}},
      {R"({"pattern": "x[0-9]"})", {R"("x1")", R"("ab x2 \\ c")"}, {R"("x")", "1"}},
      {R"({"type": "string", "format": "date"})",
       {"\"2024-02-29\"", "\"2023-12-31\"", "\"2000-02-29\""},
       {"\"2023-02-29\"", "\"1900-02-29\"", "\"0000-01-01\"", "\"2023-04-31\""}},
      {R"({"type": "string", "format": "date-time"})",
       {"\"2024-02-29T23:59:59.123Z\"", "\"2024-01-01T00:00:00+01:30\""},
       {"\"2024-01-01 00:00:00Z\"", "\"2024-01-01T24:00:00Z\""}},
      {R"({"enum": ["a", "b\"c", 1, 2.50, null, [1, "x"], {"k": false}]})",
       {"\"a\"", R"("b\"c")", "1", "2.50", "null", "[1, \"x\"]", "{\"k\":false}"},
       {"\"c\"", "2.5", "[]"}},
      {R"({"const": {"a": {}}})", {"{\"a\":{}}", "{ \"a\": {} }"}, {"{}", "{\"a\" :{}}"}},
      {R"({"type": "string", "enum": ["a", 1]})", {"\"a\""}, {"1"}},
      {R"({"type": "array", "items": {"type": "integer"}, "minItems": 1, "maxItems": 3})",
       {"[1]", "[1, 2,3]", "[\n 1\n]"},
       {"[]", "[1,2,3,4]", "[\"a\"]"}},
      {R"({"type": "array", "prefixItems": [{"type": "string"}, {"const": 1}], "items": false})",
       {"[]", "[\"a\"]", "[\"a\",1]"},
       {"[1]", "[\"a\",1,1]"}},
      {R"({"type": "array", "prefixItems": [{"type": "string"}], "items": {"type": "null"}, "minItems": 2})",
       {"[\"a\",null]", "[\"a\",null,null,null]"},
       {"[\"a\"]"}},
      {R"({"type": "object", "properties": {"name": {"type": "string"}, "age": {"type": "integer", "minimum": 0}, "tags": {"type": "array", "items": {"type": "string"}}}, "required": ["name", "age"]})",
       {R"({"name": "x", "age": 3})", R"({"name":"","age":0,"tags":["a", "b"]})"},
       {R"({"age": 3})", R"({"name": "x", "age": 3, "x": 1})", R"({"age": 3, "name": "x"})",
        R"({"name": "x", "age": 3,})", "{}"}},
      {R"({"type": "object", "properties": {"a": {"type": "null"}, "b": {"type": "null"}, "c": {"type": "null"}}})",
       {"{}", R"({"a": null})", R"({"c":null})", R"({"a":null,"c":null})", R"({"a":null,"b":null,"c":null})"},
       {R"({"b":null,"a":null})", R"({,"a":null})", "{ }"}},
      {R"({"type": "object", "properties": {"a": {"type": "null"}, "ab": {"type": "null"}}, "additionalProperties": {"type": "integer"}})",
       {R"({"a":null,"b":1,"abc":2})", R"({"x":1})", R"({"":1})", "{}"},
       {R"({"a":1})", R"({"ab":1})", R"({"b":null})", R"({"\u0061":1})"}},
      {R"({"type": "object", "required": ["x"], "additionalProperties": {"type": "integer"}})",
       {R"({"x":1,"y":2})"},
       {"{}", R"({"y":1})"}},
      {R"({"anyOf": [{"type": "integer"}, {"type": "array", "items": {"$ref": "#"}}]})",
       {"1", "[[1],[[]]]"},
       {"[\"a\"]"}},
      {R"({"oneOf": [{"type": "object", "properties": {"kind": {"const": "a"}, "v": {"type": "integer"}}, "required": ["kind", "v"]},
                     {"type": "object", "properties": {"kind": {"const": "b"}}, "required": ["kind"]}]})",
       {R"({"kind": "a", "v": 1})", R"({"kind": "b"})"},
       {R"({"kind": "b", "v": 1})", R"({"kind": "a"})"}},
      {R"({"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}, "anyOf": [{"required": ["a"]}, {"required": ["b"]}]})",
       {R"({"a":1})", R"({"b":1})", R"({"a":1,"b":2})"},
       {"{}"}},
      {R"({"allOf": [{"$ref": "#/$defs/base"}, {"properties": {"y": {"type": "null"}}, "required": ["y"]}], "$defs": {"base": {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]}}})",
       {R"({"x":1,"y":null})"},
       {R"({"x":1})", R"({"y":null})"}},
      {R"({"$ref": "#/$defs/node", "$defs": {"node": {"type": "object", "properties": {"value": {"type": "integer"}, "next": {"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]}}, "required": ["value", "next"]}}})",
       {R"({"value":1,"next":{"value":2,"next":null}})"},
       {R"({"value":1})", R"({"value":1,"next":{}})"}},
      {R"({"title": "ignored", "x-note": {"a": 1}, "default": 3, "type": "boolean"})", {"true"}, {"3"}},
      {R"({"properties": {"a": false, "b": {"type": "null"}}})", {"{}", R"({"b":null})"}, {R"({"a":1})"}},
  };
  return cases;
}

TEST(JsonSchema, AcceptsWhatFitsAndNothingElse) {
  std::mt19937 random(1);
  for (const Case& example : Cases()) {
    const auto constraint = Compile(example.schema);
    ASSERT_TRUE(constraint.ok()) << example.schema << ": " << constraint.status();
    for (const std::string& text : example.fitting) {
      EXPECT_TRUE(testing::AcceptsText(**constraint, *testing::TestVocabulary(), text, random))
          << example.schema << ": " << text;
    }
    for (const std::string& text : example.others) {
      EXPECT_FALSE(testing::AcceptsText(**constraint, *testing::TestVocabulary(), text, random))
          << example.schema << ": " << text;
    }
  }
}

// With GRAMMAR_WALKS=file the texts are written there too, a JSON pair [schema, text] a line, for another
// validator.
TEST(JsonSchema, WalksUnderTheMaskEndInTextsThatFit) {
  std::mt19937 random(2);
  std::ofstream dump;
  if (const char* path = std::getenv("GRAMMAR_WALKS"); path != nullptr) {
    dump.open(path);
  }
  for (const Case& example : Cases()) {
    const auto constraint = Compile(example.schema);
    ASSERT_TRUE(constraint.ok()) << constraint.status();
    const auto schema = ParseJsonValue(example.schema, 64);
    ASSERT_TRUE(schema.ok());
    for (int i = 0; i < 15; ++i) {
      const auto text = testing::RandomText(**constraint, *testing::TestVocabulary(), 10 + 4 * i, random);
      ASSERT_TRUE(text.has_value()) << example.schema;
      const auto value = ParseJsonValue(*text, 1000);
      if (dump.is_open()) {
        dump << "[" << QuotedJson(example.schema) << ", " << QuotedJson(*text) << "]\n";
      }
      // A repeated key among additional ones is allowed by RFC 8259, but not by our reader.
      if (!value.ok() && std::string(value.status().message()).find("twice") != std::string::npos) {
        continue;
      }
      ASSERT_TRUE(value.ok()) << *text << ": " << value.status();
      EXPECT_TRUE(testing::FitsSchema(*value, *schema, *schema)) << example.schema << ": " << *text;
    }
  }
}

TEST(JsonSchema, IntegerBoundsAreExact) {
  std::mt19937 random(3);
  for (int round = 0; round < 40; ++round) {
    int64_t low = static_cast<int64_t>(random() % 2500) - 1200;
    int64_t high = low + static_cast<int64_t>(random() % 300);
    ByteGrammar grammar;
    JsonText text(grammar);
    const int32_t rule = grammar.DeclareRule();
    grammar.Define(rule, text.Integer(low, high));
    grammar.set_root(rule);
    auto trimmed = TrimmedGrammar::Create(std::move(grammar), "test");
    ASSERT_TRUE(trimmed.ok());
    ByteAutomaton automaton(*std::move(trimmed));
    for (int64_t n = low - 30; n <= high + 30; ++n) {
      int32_t state = automaton.Id(automaton.Start());
      for (const char byte : std::to_string(n)) {
        state = state < 0 ? state : automaton.Next(state, static_cast<uint8_t>(byte));
      }
      ASSERT_EQ(state >= 0 && automaton.Accepts(state), low <= n && n <= high)
          << n << " in " << low << ".." << high;
    }
  }
}

TEST(JsonSchema, NestingIsBoundedWithoutDeadEnds) {
  const auto constraint = Compile(R"({"type": "array", "items": {"$ref": "#"}})");
  ASSERT_TRUE(constraint.ok());
  Constraint::State state = (*constraint)->Start();
  int depth = 0;
  for (;; ++depth) {
    const auto next = (*constraint)->Advance(state, TokenId{'['});
    if (!next.has_value()) {
      break;
    }
    state = *next;
  }
  EXPECT_GT(depth, 100);
  EXPECT_LT(depth, 400);
  for (; depth > 0; --depth) {
    const auto next = (*constraint)->Advance(state, TokenId{']'});
    ASSERT_TRUE(next.has_value());
    state = *next;
  }
  EXPECT_TRUE((*constraint)->Accepts(state));
}

TEST(JsonSchema, StatesOutliveWhatTheAutomatonRemembers) {
  const auto constraint = Compile("{}");
  ASSERT_TRUE(constraint.ok());
  const auto after = [&](Constraint::State state, const std::string& text) {
    for (const char byte : text) {
      const auto next = (*constraint)->Advance(state, TokenId{static_cast<uint8_t>(byte)});
      EXPECT_TRUE(next.has_value());
      state = next.value_or(state);
    }
    return state;
  };
  const Constraint::State held = after((*constraint)->Start(), R"([{"a": [)");
  std::mt19937 random(6);
  for (int walk = 0; walk < 400; ++walk) {  // each some 150 stacks that no other walk has
    std::string text;
    for (int depth = 0; depth < 150; ++depth) {
      text += random() % 2 == 0 ? "[" : "{\"\":";
    }
    after((*constraint)->Start(), text);
  }
  EXPECT_TRUE((*constraint)->Accepts(after(held, "1]}]")));
  EXPECT_FALSE((*constraint)->Advance(held, TokenId{'}'}).has_value());
}

TEST(JsonSchema, AmbiguousRecursionStaysSmall) {
  const auto constraint = Compile(
      R"({"anyOf": [{"type": "array", "items": {"$ref": "#"}}, {"type": "array", "items": {"$ref": "#"}, "minItems": 1}, {"type": "integer"}]})");
  ASSERT_TRUE(constraint.ok());
  std::mt19937 random(4);
  const std::string text = std::string(60, '[') + "1" + std::string(60, ']');
  EXPECT_TRUE(testing::AcceptsText(**constraint, *testing::TestVocabulary(), text, random));
}

TEST(JsonSchema, ErrorsNameThePointer) {
  const std::pair<std::string, std::string> cases[] = {
      {"", "regex"},
      {"{", "is no JSON"},
      {"[]", "#: is no schema"},
      {R"({"type": "text"})", "#/type"},
      {R"({"properties": {"a": {"not": {}}}})", "#/properties/a/not"},
      {R"({"type": "array", "uniqueItems": true})", "#/uniqueItems"},
      {R"({"type": "object", "patternProperties": {}})", "#/patternProperties"},
      {R"({"type": "number", "multipleOf": 2})", "#/multipleOf"},
      {R"({"typ": "number"})", "#/typ"},
      {R"({"type": "number", "exclusiveMinimum": 2})", "#/exclusiveMinimum"},
      {R"({"type": "integer", "minimum": 2.5})", "#/minimum"},
      {R"s({"type": "string", "pattern": "(?=a)"})s", "#/pattern"},
      {R"({"type": "string", "pattern": "a", "minLength": 1})", "#/pattern"},
      {R"({"type": "string", "format": "hostname"})", "#/format"},
      {R"({"$ref": "#/$defs/x"})", "#/$defs/x"},
      {R"({"$ref": "http://other"})", "http://other"},
      {R"({"$ref": "#"})", "refers to itself"},
      {R"({"anyOf": [{"$ref": "#"}, {"type": "null"}]})", "refers to itself"},
      {R"({"oneOf": [{"type": "integer"}, {"type": "number"}]})", "#/oneOf"},
      {R"({"oneOf": [{"enum": ["x", "y"]}, {"const": "z"}, {"enum": ["y"]}]})", "entries 0 and 2"},
      {R"({"oneOf": [{"const": "x", "type": "null"}, {"const": "x"}, {"const": "x"}]})", "entries 1 and 2"},
      {R"({"oneOf": [{"const": "x"}, {"type": "null"}, {"pattern": "y"}]})", "entries 0 and 2"},
      {R"({"anyOf": []})", "#/anyOf"},
      {R"({"enum": []})", "#/enum"},
      {R"({"enum": [1], "minimum": 0})", "#/minimum"},
      {R"({"type": "object", "required": ["a"], "additionalProperties": false})", "#/required/0"},
      {R"({"type": "array", "minItems": 3, "maxItems": 2})", "no text"},
      {R"({"type": "integer", "minimum": 3, "maximum": 2})", "no text"},
      {R"({"type": "array", "items": {"$ref": "#"}, "minItems": 1})", "no text"},
      {R"(false)", "no text"},
      {R"({"type": "string", "minLength": -1})", "#/minLength"},
      {R"({"type": "string", "minLength": 100000000})", "#/minLength"},
      {R"({"type": "string", "maxLength": 199000})", "states"},
      {R"({"allOf": [{"minimum": 1}, {"minimum": 2}]})", "#/allOf/1"},
      {R"({"allOf": [{"prefixItems": [{"type": "integer"}]}, {"items": {"type": "string"}}]})", "#/allOf/1"},
      {R"({"items": {"type": "string"}, "allOf": [{"prefixItems": [{"type": "integer"}]}]})", "#/allOf/0"},
      {R"({"prefixItems": [{"type": "integer"}], "$ref": "#/$defs/a", "$defs": {"a": {"items": false}}})",
       "prefixItems of another part"},
      {R"({"allOf": [{"$ref": "#"}]})", "#"},
      {R"({"type": "null", "anyOf": [{"$ref": "#"}, {"$ref": "#"}]})", "#"},
      {R"({"a": 1, "a": 2})", "twice"},
      {std::string(70'000, ' ') + "{}", "65536"},
      {std::string(100, '[') + std::string(100, ']'), "nests deeper"},
  };
  for (const auto& [schema, place] : cases) {
    if (schema.empty()) {
      continue;
    }
    const auto start = std::chrono::steady_clock::now();
    const auto constraint = Compile(schema);
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(10)) << schema.substr(0, 100);
    ASSERT_FALSE(constraint.ok()) << schema.substr(0, 100);
    EXPECT_EQ(constraint.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(constraint.status().message()), HasSubstr(place)) << schema.substr(0, 100);
    EXPECT_THAT(std::string(constraint.status().message()), HasSubstr("json_schema"))
        << schema.substr(0, 100);
  }
}

TEST(JsonSchema, LargeSchemasCompileOrAreRefusedSoon) {
  std::string chain = R"({"$ref": "#/$defs/a0", "$defs": {)";
  for (int i = 0; i < 1000; ++i) {
    chain += "\"a" + std::to_string(i) + R"(": {"type": "array", "items": {"$ref": "#/$defs/a)" +
             std::to_string(i + 1) + "\"}}, ";
  }
  chain += R"("a1000": {"type": "null"}}})";
  std::string wide = R"({"type": "object", "properties": {)";
  for (int i = 0; i < 1500; ++i) {
    wide += (i > 0 ? ", " : "") + ("\"property" + std::to_string(i) + "\": {\"type\": \"integer\"}");
  }
  wide += "}}";
  std::string doubled = "{\"type\": \"null\"}";
  for (int i = 0; i < 10; ++i) {
    doubled = R"({"description": "x", "type": "array", "items": )" + doubled +
              R"(, "minItems": 90, "maxItems": 99})";
  }
  const auto start = std::chrono::steady_clock::now();
  EXPECT_TRUE(Compile(chain).ok()) << "each level may be empty";
  EXPECT_TRUE(Compile(wide).ok()) << Compile(wide).status();
  EXPECT_TRUE(Compile(doubled).ok()) << Compile(doubled).status();
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20));
}

// Of this thread: what others do on the machine does not count.
double CpuSeconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return now.tv_sec + 1e-9 * now.tv_nsec;
}

TEST(JsonSchema, ThousandsOfConstantsAreKeptApartAsFastAsTheyAreListed) {
  std::string constants;
  for (int i = 0; i < 3000; ++i) {
    constants += (i > 0 ? "," : "") + (R"({"const":")" + std::to_string(i) + "\"}");
  }
  const auto seconds = [&](const std::string& keyword) {
    const double start = CpuSeconds();
    EXPECT_TRUE(Compile("{\"" + keyword + "\":[" + constants + "]}").ok());
    return CpuSeconds() - start;
  };
  const double listed = seconds("anyOf");
  EXPECT_LT(seconds("oneOf"), 5 * listed);
}

}  // namespace
}  // namespace arborist
