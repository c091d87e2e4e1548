#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"

namespace arborist {

// A JSON text as a schema needs it: members keep their order and numbers their spelling (common/json keeps
// neither).
struct JsonValue {
  enum class Kind : uint8_t { kNull, kBool, kNumber, kString, kArray, kObject };

  JsonValue();  // null; not implicit, as a pair of the incomplete type asks for it while it is made

  Kind kind = Kind::kNull;
  bool boolean = false;
  std::string text;                                        // a string's value; a number as it is spelled
  std::vector<JsonValue> elements;                         // of an array
  std::vector<std::pair<std::string, JsonValue>> members;  // of an object, each key once

  const JsonValue* Find(std::string_view key) const;  // a member, or null
  bool IsObject() const { return kind == Kind::kObject; }
  bool IsInteger() const;  // a number without fraction or exponent
};

// Strict RFC 8259, at most `max_depth` deep. InvalidArgument names the byte.
absl::StatusOr<JsonValue> ParseJsonValue(std::string_view text, int max_depth);

// Equal as JSON values if the texts are equal: objects in order, numbers by spelling.
bool SameJson(const JsonValue& a, const JsonValue& b);

}  // namespace arborist
