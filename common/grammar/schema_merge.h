#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "common/grammar/json_value.h"

namespace arborist {

// Whether a keyword of JSON schema says nothing about what fits (title, description, $defs, x-..., ...).
bool IsAnnotation(std::string_view keyword);

// One schema that both values must fit, without annotations: types are intersected, requirements and
// properties joined, anything else may stand in both only if it is the same. InvalidArgument names `pointer`
// and the keyword that cannot be joined exactly.
absl::StatusOr<JsonValue> MergeSchemas(const JsonValue& a, const JsonValue& b, const std::string& pointer);

// `schema` without one of its keywords.
JsonValue Without(const JsonValue& schema, std::string_view keyword);

// Whether no value fits both, as far as their explicit types, constants and required constant properties
// show. A false answer proves nothing.
bool AreDisjoint(const JsonValue& a, const JsonValue& b);

// Two of the schemas that may both fit one value, lower index first; nothing if AreDisjoint of each two.
// Thousands of string constants are compared in linear time.
std::optional<std::pair<size_t, size_t>> FindOverlap(const std::vector<const JsonValue*>& schemas);

}  // namespace arborist
