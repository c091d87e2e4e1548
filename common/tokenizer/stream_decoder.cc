#include "common/tokenizer/stream_decoder.h"

#include "common/base/utf8.h"

namespace arborist {

StreamDecoder::StreamDecoder(std::string_view prompt_bytes)
    : held_(IncompleteUtf8Tail(prompt_bytes)), from_prompt_(held_.size()) {}

std::string StreamDecoder::Append(std::string_view bytes) {
  if (bytes.empty()) {
    return {};
  }
  held_.append(bytes);
  return Take(/*at_end=*/false);
}

std::string StreamDecoder::Flush() { return Take(/*at_end=*/true); }

std::string StreamDecoder::Take(bool at_end) {
  std::string text;
  size_t at = 0;
  while (at < held_.size()) {
    const std::string_view rest = std::string_view(held_).substr(at);
    const Utf8Step step = NextUtf8(rest);
    if (step.kind == Utf8Step::Kind::kIncomplete && !at_end) {
      break;
    }
    if (step.kind == Utf8Step::Kind::kCharacter) {
      text.append(rest.substr(0, step.bytes));
    } else if (at + step.bytes > from_prompt_) {  // broken bytes of the prompt alone are not ours to show
      text.append(kReplacementCharacter);
    }
    at += step.bytes;
  }
  held_.erase(0, at);
  from_prompt_ = at >= from_prompt_ ? 0 : from_prompt_ - at;
  return text;
}

}  // namespace arborist
