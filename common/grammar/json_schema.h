#pragma once

#include <cstddef>
#include <string_view>

#include "absl/status/status.h"
#include "common/grammar/byte_grammar.h"

namespace arborist {

inline constexpr size_t kMaxJsonSchemaBytes = size_t{64} << 10;

// Makes the grammar's root the JSON texts that fit `schema` (JSON Schema 2020-12; $defs and definitions) and
// that are written in the way below. What is written always parses and always fits; not every way to write a
// fitting value is allowed. InvalidArgument names the JSON pointer of what is not supported: a keyword that
// restricts is never ignored.
//
// - White space: after `,` and `:` and after opening and before closing brackets at most one line break with
// up to
//   20 spaces, or up to one space; none elsewhere.
// - Objects: the named properties in the order of "properties", each once, those not required may be left
// out. Others
//   only if "additionalProperties" says so or if there are no "properties" at all; they come last, and their
//   keys hold no escapes and may repeat (RFC 8259 allows it; parsers keep one).
// - Numbers: at most 18 digits before and after the point and 2 in the exponent. Integers have neither.
// - Strings under "pattern" or "format": one way to write each character.
absl::Status AddJsonSchema(ByteGrammar& grammar, std::string_view schema);

}  // namespace arborist
