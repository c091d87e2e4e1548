// JSON schemas as constraints. Input: schema, 0xFF, bytes that pick tokens. Whatever may end must parse, and
// fit the schema by a checker that shares nothing with the compiler.
#include "common/base/check.h"
#include "common/grammar/json_schema.h"
#include "common/grammar/testing/schema_checker.h"
#include "common/json/json.h"
#include "tests/fuzz/grammar_walk.h"

namespace arborist {
namespace {

constexpr int kMaxDepth = 256;

// What the checker does not know (formats, recursion without end, other dialects of regular expressions) or
// knows only in doubles (integers of more than 15 digits).
bool CheckerKnows(const std::string& schema) {
  size_t digits = 0;
  for (const char c : schema) {
    digits = c >= '0' && c <= '9' ? digits + 1 : 0;
    if (digits > 15) {
      return false;
    }
  }
  for (const char* word : {"$ref", "format", "pattern", "\\u", "e+", "E+", "e1", "e2", "e3"}) {
    if (schema.find(word) != std::string::npos) {
      return false;
    }
  }
  return true;
}

}  // namespace
}  // namespace arborist

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace arborist;
  fuzz::FuzzInput input(data, size);
  const std::string schema(input.Until('\xFF'));
  if (schema.empty()) {
    return 0;
  }
  const absl::StatusOr<JsonValue> parsed = ParseJsonValue(schema, kMaxDepth);
  const bool known = parsed.ok() && CheckerKnows(schema);
  const auto accepted = [&](const std::string& text) {
    const absl::StatusOr<JsonValue> value = ParseJsonValue(text, kMaxDepth);
    if (!value.ok() && value.status().message().find("stands twice") != std::string_view::npos) {
      return;  // keys that the schema does not name may repeat
    }
    Check(value.ok(), "what may end parses");
    if (std::count(text.begin(), text.end(), '[') + std::count(text.begin(), text.end(), '{') < 60) {
      Check(ParseJson("{\"value\": " + text + "}", "text").ok(), "other parsers read it too");
    }
    Check(!known || testing::FitsSchema(*value, *parsed, *parsed), "what may end fits the schema");
  };
  const bool compiled = fuzz::WalkUnderMasks({.json_schema = schema}, input, accepted);
  Check(!compiled || parsed.ok(), "only JSON is compiled");
  return 0;
}
