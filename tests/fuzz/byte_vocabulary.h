#pragma once

#include <string>

namespace arborist::fuzz {

// The 256 tokens of single bytes in the alphabet of byte-level BPE, as members of tokenizer.json's
// model.vocab: byte b is token b.
inline std::string ByteVocabularyEntries() {
  std::string entries;
  int beyond = 256;  // bytes without a glyph of their own are written by the characters from here on
  for (int byte = 0; byte < 256; ++byte) {
    const bool has_glyph = (byte > 0x20 && byte < 0x7F) || (byte >= 0xA1 && byte != 0xAD);
    const int character = has_glyph ? byte : beyond++;
    entries += byte == 0 ? "\"\\u" : ",\"\\u";
    for (int shift = 12; shift >= 0; shift -= 4) {
      entries += "0123456789abcdef"[character >> shift & 15];
    }
    entries += "\":" + std::to_string(byte);
  }
  return entries;
}

}  // namespace arborist::fuzz
