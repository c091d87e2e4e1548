#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace arborist {

// The byte-level alphabet of tokenizer.json: each of the 256 bytes is written as one printable character.

// The character that stands for `byte`.
uint32_t ByteToCharacter(uint8_t byte);

// The bytes that `text` stands for; nothing if a character is outside the alphabet.
std::optional<std::string> BytesOfAlphabetText(std::string_view text);

}  // namespace arborist
