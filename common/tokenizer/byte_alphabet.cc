#include "common/tokenizer/byte_alphabet.h"

#include <array>

#include "common/base/utf8.h"

namespace arborist {
namespace {

constexpr bool IsItself(int byte) {
  return (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) || (byte >= 0xAE && byte <= 0xFF);
}

// Printable bytes stand for themselves; the others, in order, are 256, 257, ...
constexpr std::array<uint16_t, 256> kCharacterOfByte = [] {
  std::array<uint16_t, 256> table{};
  uint16_t next = 256;
  for (int byte = 0; byte < 256; ++byte) {
    table[byte] = IsItself(byte) ? static_cast<uint16_t>(byte) : next++;
  }
  return table;
}();

constexpr int kLastCharacter = 256 + 68 - 1;  // 68 bytes are not printable

constexpr std::array<int16_t, kLastCharacter + 1> kByteOfCharacter = [] {
  std::array<int16_t, kLastCharacter + 1> table{};
  for (int16_t& byte : table) {
    byte = -1;
  }
  for (int16_t byte = 0; byte < 256; ++byte) {
    table[kCharacterOfByte[byte]] = byte;
  }
  return table;
}();

}  // namespace

uint32_t ByteToCharacter(uint8_t byte) { return kCharacterOfByte[byte]; }

std::optional<std::string> BytesOfAlphabetText(std::string_view text) {
  std::string bytes;
  bytes.reserve(text.size());
  while (!text.empty()) {
    const Utf8Step step = NextUtf8(text);
    if (step.kind != Utf8Step::Kind::kCharacter || step.character > kLastCharacter ||
        kByteOfCharacter[step.character] < 0) {
      return std::nullopt;
    }
    bytes.push_back(static_cast<char>(kByteOfCharacter[step.character]));
    text.remove_prefix(step.bytes);
  }
  return bytes;
}

}  // namespace arborist
