#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/grammar/byte_grammar.h"
#include "common/grammar/json_text.h"
#include "common/grammar/json_value.h"

namespace arborist {

// What single keywords of a schema say. `pointer` is the schema's own JSON pointer, for errors.

absl::Status SchemaError(const std::string& pointer, const std::string& what);

// An error for a keyword that is neither supported nor an annotation.
absl::Status CheckSchemaKeywords(const JsonValue& schema, const std::string& pointer);

// What "#" or "#/a/b" points to within `root`.
absl::StatusOr<const JsonValue*> ResolveSchema(const JsonValue& root, const std::string& pointer);

// The types in "type", or, without it, those that the other keywords speak of; perhaps none.
absl::StatusOr<std::vector<std::string>> SchemaTypes(const JsonValue& schema, const std::string& pointer);

// A count, or `fallback` if the schema has none.
absl::StatusOr<int> SchemaCount(const JsonValue& schema, const char* keyword, const std::string& pointer,
                                int fallback);

// The strings, and the numbers, that fit.
absl::StatusOr<ByteGrammar::Part> SchemaString(ByteGrammar& grammar, JsonText& text, const JsonValue& schema,
                                               const std::string& pointer);
absl::StatusOr<ByteGrammar::Part> SchemaNumber(JsonText& text, const JsonValue& schema,
                                               const std::string& pointer, bool integer);

}  // namespace arborist
