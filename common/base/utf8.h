#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace arborist {

// What stands at the start of a byte string, by the Unicode rules (no overlong forms, no surrogates).
struct Utf8Step {
  enum class Kind : uint8_t {
    kCharacter,   // `bytes` form one character
    kIncomplete,  // all of the bytes begin a character that more bytes may complete
    kInvalid,     // `bytes` are a maximal subpart that no further byte can mend
  };
  Kind kind;
  int bytes;           // >= 1
  uint32_t character;  // the code point, for kCharacter
};

// `bytes` must not be empty.
Utf8Step NextUtf8(std::string_view bytes);

// Offset of the first byte that is not part of a complete character, or size() if all is valid.
size_t ValidUtf8Prefix(std::string_view bytes);

// All of it valid, without C0 control characters and DEL.
bool IsPrintableUtf8(std::string_view bytes);

// At most 3 bytes at the end of `bytes` that begin a character which more bytes may complete.
std::string_view IncompleteUtf8Tail(std::string_view bytes);

void AppendUtf8(uint32_t character, std::string& out);

// Unicode White_Space.
bool IsUnicodeSpace(uint32_t character);

// Where the white space at the end of `text` (valid UTF-8) begins, and how long that at its start is.
size_t TrailingSpaceBegin(std::string_view text);
size_t LeadingSpaceBytes(std::string_view text);

inline constexpr std::string_view kReplacementCharacter = "\xEF\xBF\xBD";  // U+FFFD

}  // namespace arborist
