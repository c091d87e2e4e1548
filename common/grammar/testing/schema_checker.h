#pragma once

#include <string>

#include "common/grammar/json_value.h"

namespace arborist::testing {

// Whether `value` fits `schema` by the words of JSON Schema 2020-12: written for tests, apart from the
// compiler. Knows the keywords that the compiler supports except format. `root` is what references start
// from.
bool FitsSchema(const JsonValue& value, const JsonValue& schema, const JsonValue& root);

}  // namespace arborist::testing
