// Text in arbitrary pieces through StopRule, and tokens through AnswerText, against a search in the whole
// text.
#include <span>

#include "common/base/check.h"
#include "coordinator/answer_text.h"
#include "coordinator/stop_rule.h"
#include "tests/fuzz/byte_vocabulary.h"
#include "tests/fuzz/fuzz_input.h"

namespace arborist::coordinator {
namespace {

struct Found {
  size_t end = std::string::npos;  // bytes up to and with the stop string; npos: none
  int stop = -1;
};

// The stop that is complete first, the longest of those that are complete at the same byte.
Found Search(const std::string& text, const std::vector<std::string>& stops) {
  Found found;
  for (size_t i = 0; i < stops.size(); ++i) {
    const size_t begin = text.find(stops[i]);
    const size_t end = begin == std::string::npos ? begin : begin + stops[i].size();
    if (end < found.end ||
        (end != std::string::npos && end == found.end && stops[i].size() > stops[found.stop].size())) {
      found = {end, static_cast<int>(i)};
    }
  }
  return found;
}

// Bytes at the end of `text` that may become a stop string.
size_t MayBecomeOne(const std::string& text, const std::vector<std::string>& stops) {
  size_t most = 0;
  for (const std::string& stop : stops) {
    for (size_t length = 1; length < stop.size() && length <= text.size(); ++length) {
      if (text.ends_with(stop.substr(0, length))) {
        most = std::max(most, length);
      }
    }
  }
  return most;
}

// Small alphabets: overlapping repetitions are where matchers go wrong.
std::string Text(std::string_view bytes, int letters) {
  std::string text(bytes);
  for (char& byte : text) {
    byte = letters == 0 ? byte : static_cast<char>('a' + static_cast<uint8_t>(byte) % letters);
  }
  return text;
}

void CheckPieces(const std::vector<std::string>& stops, const std::string& text, std::string_view cuts) {
  const Found expected = Search(text, stops);
  StopRule rule(stops);
  std::string given, shown;
  size_t cut = 0;
  while (given.size() < text.size()) {
    const size_t length = cuts.empty() ? text.size() : static_cast<uint8_t>(cuts[cut++ % cuts.size()]) % 12;
    const std::string piece = text.substr(given.size(), length + (cut > 64 ? 1 : 0));
    given += piece;
    const StopRule::Result result = rule.Append(piece);
    shown += result.text;
    if (result.stop >= 0) {
      Check(result.stop == expected.stop, "the right stop string is found");
      Check(given.size() >= expected.end && given.size() - piece.size() < expected.end, "in its piece");
      Check(shown == text.substr(0, expected.end - stops[expected.stop].size()), "text before the stop");
      return;
    }
    Check(shown == given.substr(0, given.size() - MayBecomeOne(given, stops)),
          "no more is held than may stop");
  }
  Check(expected.stop < 0, "a stop string was missed");
  shown += rule.Flush();
  Check(shown == text, "without a stop string all text is shown");
}

constexpr int kSpecial = 256;
constexpr int kStopId = 257;
constexpr TokenId kSilent{'Q'};  // an ordinary token that ends answers: it has no text either

// Every byte is a token (the alphabet of byte-level BPE), then two special tokens.
const Tokenizer& ByteTokenizer() {
  static const Tokenizer tokenizer = [] {
    const std::string json = R"({"pre_tokenizer":{"type":"ByteLevel"},"model":{"type":"BPE","vocab":{)" +
                             fuzz::ByteVocabularyEntries() +
                             R"(},"merges":[]},"added_tokens":[{"id":256,"content":"<a>","special":true},)" +
                             R"({"id":257,"content":"<b>","special":true}]})";
    absl::StatusOr<Tokenizer> parsed = Tokenizer::Parse(json, "", "fuzz");
    Check(parsed.ok(), std::string(parsed.status().message()));
    return *std::move(parsed);
  }();
  return tokenizer;
}

void CheckAnswer(const std::vector<std::string>& stops, fuzz::FuzzInput input) {
  const Tokenizer& tokenizer = ByteTokenizer();
  PathStart start;
  start.sampling.stop_ids = {TokenId{kStopId}, kSilent};
  start.sampling.min_tokens = static_cast<int32_t>(input.Below(6));
  const bool echo = input.Below(2) == 1;
  for (const char byte : input.Bytes(input.Below(4))) {
    start.prompt.push_back(TokenId{static_cast<uint8_t>(byte)});
  }
  std::vector<TokenId> tokens;
  std::string free_bytes, bytes;  // of those with a text
  while (!input.empty()) {
    const int byte = input.Byte();
    const TokenId id{byte == 0xFE ? kSpecial : byte == 0xFF ? kStopId : byte};
    tokens.push_back(id);
    const bool is_free = tokens.size() <= static_cast<size_t>(start.sampling.min_tokens);
    if (id != kSilent && !tokenizer.IsSpecial(id)) {
      (is_free ? free_bytes : bytes) += static_cast<char>(byte);
    }
  }
  std::string prompt_bytes;
  for (const TokenId id : start.prompt) {
    prompt_bytes += tokenizer.Bytes(id);
  }
  StreamDecoder decoder = echo ? StreamDecoder() : StreamDecoder(prompt_bytes);
  if (echo) {
    decoder.Append(prompt_bytes);
  }
  const std::string free_text = decoder.Append(free_bytes);
  const std::string certain = decoder.Append(bytes);
  const Found found = Search(certain, stops);
  AnswerText answer(tokenizer, start, {.stops = stops, .echo = echo});
  std::string shown;
  for (size_t at = 0; at < tokens.size();) {
    const size_t count = std::min(tokens.size() - at, 1 + static_cast<size_t>(Raw(tokens[at])) % 5);
    const AnswerText::Result result = answer.Append(std::span(tokens).subspan(at, count));
    shown += result.text;
    at += result.taken;
    if (result.stopped) {
      Check(found.stop >= 0 && answer.stop_string() == stops[found.stop], "the right stop ends the answer");
      Check(shown == free_text + certain.substr(0, found.end - stops[found.stop].size()),
            "the answer ends before it");
      return;
    }
    Check(result.taken == count, "all tokens are taken where no stop string ends the answer");
  }
  Check(found.stop < 0, "a stop string was missed");
  shown += answer.Flush();
  Check(shown == free_text + certain + decoder.Flush(), "without a stop string the answer is the whole text");
}

}  // namespace
}  // namespace arborist::coordinator

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace arborist;
  fuzz::FuzzInput input(data, size);
  const int letters = static_cast<int>(input.Below(4));  // 0: any byte
  std::vector<std::string> stops(input.Below(5));
  for (std::string& stop : stops) {
    const size_t length = 1 + input.Below(9);
    stop = coordinator::Text(input.Bytes(length), letters);
    stop += stop.empty() ? "a" : "";
  }
  const std::string_view cuts = input.Bytes(input.Below(6));
  coordinator::CheckPieces(stops, coordinator::Text(input.rest(), letters), cuts);
  coordinator::CheckAnswer(stops, input);
  return 0;
}
