#include "common/base/utf8.h"

#include <algorithm>

#include "common/base/check.h"

namespace arborist {
namespace {

// The lead byte decides the length and the range of the second byte; later bytes are 80..BF.
struct Lead {
  int length;  // 0: never starts a character
  uint8_t second_min;
  uint8_t second_max;
};

Lead LeadOf(uint8_t byte) {
  if (byte < 0x80) return {1, 0, 0};
  if (byte < 0xC2) return {0, 0, 0};
  if (byte < 0xE0) return {2, 0x80, 0xBF};
  if (byte == 0xE0) return {3, 0xA0, 0xBF};
  if (byte == 0xED) return {3, 0x80, 0x9F};
  if (byte < 0xF0) return {3, 0x80, 0xBF};
  if (byte == 0xF0) return {4, 0x90, 0xBF};
  if (byte < 0xF4) return {4, 0x80, 0xBF};
  if (byte == 0xF4) return {4, 0x80, 0x8F};
  return {0, 0, 0};
}

}  // namespace

Utf8Step NextUtf8(std::string_view bytes) {
  Check(!bytes.empty(), "there is no character in an empty string");
  const uint8_t first = static_cast<uint8_t>(bytes[0]);
  const Lead lead = LeadOf(first);
  if (lead.length == 0) {
    return {Utf8Step::Kind::kInvalid, 1, 0};
  }
  if (lead.length == 1) {
    return {Utf8Step::Kind::kCharacter, 1, first};
  }
  uint32_t character = first & (0xFFu >> (lead.length + 1));
  for (int i = 1; i < lead.length; ++i) {
    if (i == static_cast<int>(bytes.size())) {
      return {Utf8Step::Kind::kIncomplete, i, 0};
    }
    const uint8_t byte = static_cast<uint8_t>(bytes[i]);
    const uint8_t least = i == 1 ? lead.second_min : 0x80;
    const uint8_t most = i == 1 ? lead.second_max : 0xBF;
    if (byte < least || byte > most) {
      return {Utf8Step::Kind::kInvalid, i, 0};
    }
    character = (character << 6) | (byte & 0x3Fu);
  }
  return {Utf8Step::Kind::kCharacter, lead.length, character};
}

size_t ValidUtf8Prefix(std::string_view bytes) {
  size_t at = 0;
  while (at < bytes.size()) {
    if (static_cast<uint8_t>(bytes[at]) < 0x80) {
      ++at;
      continue;
    }
    const Utf8Step step = NextUtf8(bytes.substr(at));
    if (step.kind != Utf8Step::Kind::kCharacter) {
      return at;
    }
    at += step.bytes;
  }
  return at;
}

bool IsPrintableUtf8(std::string_view bytes) {
  const bool controls = std::any_of(bytes.begin(), bytes.end(),
                                    [](char c) { return static_cast<uint8_t>(c) < 0x20 || c == 0x7F; });
  return !controls && ValidUtf8Prefix(bytes) == bytes.size();
}

std::string_view IncompleteUtf8Tail(std::string_view bytes) {
  // Only the bytes from the last lead byte on can be an unfinished character.
  for (size_t length = 1; length <= std::min<size_t>(3, bytes.size()); ++length) {
    const std::string_view tail = bytes.substr(bytes.size() - length);
    const bool continues = (static_cast<uint8_t>(tail[0]) & 0xC0) == 0x80;
    if (!continues) {
      const Utf8Step step = NextUtf8(tail);
      return step.kind == Utf8Step::Kind::kIncomplete ? tail : std::string_view();
    }
  }
  return {};
}

void AppendUtf8(uint32_t character, std::string& out) {
  if (character < 0x80) {
    out.push_back(static_cast<char>(character));
  } else if (character < 0x800) {
    out.push_back(static_cast<char>(0xC0 | (character >> 6)));
    out.push_back(static_cast<char>(0x80 | (character & 0x3F)));
  } else if (character < 0x10000) {
    out.push_back(static_cast<char>(0xE0 | (character >> 12)));
    out.push_back(static_cast<char>(0x80 | ((character >> 6) & 0x3F)));
    out.push_back(static_cast<char>(0x80 | (character & 0x3F)));
  } else {
    out.push_back(static_cast<char>(0xF0 | (character >> 18)));
    out.push_back(static_cast<char>(0x80 | ((character >> 12) & 0x3F)));
    out.push_back(static_cast<char>(0x80 | ((character >> 6) & 0x3F)));
    out.push_back(static_cast<char>(0x80 | (character & 0x3F)));
  }
}

bool IsUnicodeSpace(uint32_t character) {
  return (character >= 0x09 && character <= 0x0D) || character == 0x20 || character == 0x85 ||
         character == 0xA0 || character == 0x1680 || (character >= 0x2000 && character <= 0x200A) ||
         character == 0x2028 || character == 0x2029 || character == 0x202F || character == 0x205F ||
         character == 0x3000;
}

size_t TrailingSpaceBegin(std::string_view text) {
  size_t begin = text.size();
  while (begin > 0) {
    size_t at = begin - 1;
    while (at > 0 && (static_cast<uint8_t>(text[at]) & 0xC0) == 0x80) {
      --at;
    }
    const Utf8Step step = NextUtf8(text.substr(at));
    if (step.kind != Utf8Step::Kind::kCharacter || !IsUnicodeSpace(step.character)) {
      break;
    }
    begin = at;
  }
  return begin;
}

size_t LeadingSpaceBytes(std::string_view text) {
  size_t at = 0;
  while (at < text.size()) {
    const Utf8Step step = NextUtf8(text.substr(at));
    if (step.kind != Utf8Step::Kind::kCharacter || !IsUnicodeSpace(step.character)) {
      break;
    }
    at += step.bytes;
  }
  return at;
}

}  // namespace arborist
