// Bytes in arbitrary pieces through StreamDecoder, against a decoder of the whole that knows UTF-8 only as
// the list of all characters.
#include <array>
#include <unordered_set>

#include "common/base/check.h"
#include "common/base/utf8.h"
#include "common/tokenizer/stream_decoder.h"
#include "tests/fuzz/fuzz_input.h"

namespace arborist {
namespace {

constexpr uint32_t kCharacters = 0x110000;

std::string Written(uint32_t c) {
  const auto tail = [c](int shift) { return static_cast<char>(0x80 + c / (1u << shift) % 64); };
  if (c < 0x80) return {static_cast<char>(c)};
  if (c < 0x800) return {static_cast<char>(0xC0 + c / 64), tail(0)};
  if (c < 0x10000) return {static_cast<char>(0xE0 + c / 4096), tail(6), tail(0)};
  return {static_cast<char>(0xF0 + c / 262144), tail(12), tail(6), tail(0)};
}

// Every character, and every proper beginning of one.
struct AllCharacters {
  std::unordered_set<std::string> whole, begun;
  AllCharacters() {
    for (uint32_t c = 0; c < kCharacters; ++c) {
      if (c >= 0xD800 && c < 0xE000) {
        continue;
      }
      const std::string text = Written(c);
      // Of four bytes the last one may be anything from 80 to BF: one of them stands for all.
      if (text.size() < 4 || text.back() == '\x80') {
        whole.insert(text);
        for (size_t length = 1; length < text.size(); ++length) {
          begun.insert(text.substr(0, length));
        }
      }
    }
  }
  bool Whole(std::string text) const {
    if (text.size() == 4 && (static_cast<uint8_t>(text[3]) & 0xC0) == 0x80) {
      text[3] = '\x80';
    }
    return whole.contains(text);
  }
};

struct Decoded {
  std::string text;
  size_t left = 0;  // bytes at the end that begin a character
};

// `from_prompt` bytes at the start are the prompt's: what is broken within them alone is not shown.
Decoded DecodeWhole(const std::string& bytes, size_t from_prompt, bool at_end) {
  static const AllCharacters all;
  Decoded out;
  for (size_t at = 0; at < bytes.size();) {
    size_t length = 0;  // of the character here
    for (size_t n = 1; n <= 4 && at + n <= bytes.size() && length == 0; ++n) {
      length = all.Whole(bytes.substr(at, n)) ? n : 0;
    }
    if (length > 0) {
      out.text += bytes.substr(at, length);
      at += length;
      continue;
    }
    length = 1;
    while (at + length < bytes.size() && all.begun.contains(bytes.substr(at, length + 1))) {
      ++length;
    }
    if (!at_end && at + length == bytes.size() && all.begun.contains(bytes.substr(at, length))) {
      out.left = length;
      return out;
    }
    out.text += at + length > from_prompt ? std::string(kReplacementCharacter) : "";
    at += length;
  }
  return out;
}

void CheckStream(StreamDecoder& decoder, std::string bytes, fuzz::FuzzInput& input) {
  const size_t from_prompt = bytes.size();
  std::string shown;
  for (int piece = 0; piece < 256 && !input.empty(); ++piece) {
    const std::string_view part = input.Bytes(input.Below(17));
    bytes += part;
    shown += decoder.Append(part);
    Check(shown == DecodeWhole(bytes, from_prompt, false).text, "as much is shown as is certain");
  }
  shown += decoder.Flush();
  Check(shown == DecodeWhole(bytes, from_prompt, true).text, "pieces give the text of the whole");
  Check(ValidUtf8Prefix(shown) == shown.size(), "what is shown is UTF-8");
}

void CheckSpaces(const std::string& text) {
  Check(ValidUtf8Prefix(text) == text.size(), "decoded text is UTF-8");
  const size_t begin = TrailingSpaceBegin(text);
  Check(LeadingSpaceBytes(text.substr(begin)) == text.size() - begin, "the end is white space only");
  const size_t lead = LeadingSpaceBytes(text);
  Check(lead == text.size() ? begin == 0 : begin >= lead, "leading and trailing space do not overlap");
}

}  // namespace
}  // namespace arborist

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace arborist;
  const std::string all(reinterpret_cast<const char*>(data), size);
  const Decoded whole = DecodeWhole(all, 0, false);
  Check(IncompleteUtf8Tail(all).size() == whole.left, "the unfinished end");
  Check((ValidUtf8Prefix(all) == size) == (whole.text == all), "valid text decodes to itself");
  CheckSpaces(whole.text);

  fuzz::FuzzInput input(data, size);
  const std::string prompt(input.Bytes(input.Below(8)));
  StreamDecoder decoder(prompt);
  const size_t left = DecodeWhole(prompt, 0, false).left;
  fuzz::FuzzInput first(data, size / 2);
  CheckStream(decoder, prompt.substr(prompt.size() - left), first);
  CheckStream(decoder, "", input);  // after Flush it starts anew
  return 0;
}
