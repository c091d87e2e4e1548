#pragma once

#include <cstddef>
#include <string_view>

#include "absl/status/statusor.h"
#include "common/grammar/byte_grammar.h"
#include "common/grammar/code_points.h"

namespace arborist {

// What a regular expression says about a text.
enum class RegexMatch : uint8_t {
  kWhole,   // it matches all of the text
  kSearch,  // it matches somewhere in it, as JSON schema's "pattern" does: ^ and $ bind it to the ends
};

inline constexpr size_t kMaxRegexBytes = 4096;

// Adds the texts of `pattern` to the grammar. The dialect is a subset of ECMAScript's in Unicode mode:
// literals, `.` (no line end), classes with ranges and negation, \d \w (ASCII) and \s (ECMAScript's white
// space) and their negations, \n \r \t \f \v \0 \xHH \uHHHH \u{H...}, escaped punctuation, groups (capturing,
// (?:...) and named, all alike), alternation, * + ? {m} {m,} {m,n} (lazy forms are the same language), ^ and
// $ at the ends of an alternative of the top level. Braces and ] that are none of these stand for themselves,
// but {,n}, which others read as {0,n}, is refused. InvalidArgument names the byte position of what is not
// supported (lookaround, backreferences, \b, \p, flags, ...) and of what grows past the grammar's limits.
absl::StatusOr<ByteGrammar::Part> AddRegex(ByteGrammar& grammar, std::string_view pattern, RegexMatch match,
                                           TextEncoding encoding);

}  // namespace arborist
