#include "coordinator/answer_text.h"

#include <algorithm>

namespace arborist::coordinator {
namespace {

// Enough of the prompt's end to see an unfinished character: one has at most 3 bytes before its last.
constexpr size_t kTailTokens = 3;

std::string PromptTail(const Tokenizer& tokenizer, std::span<const TokenId> prompt) {
  std::string bytes;
  for (const TokenId id : prompt.last(std::min(prompt.size(), kTailTokens))) {
    bytes += tokenizer.Bytes(id);
  }
  return bytes;
}

}  // namespace

AnswerText::AnswerText(const Tokenizer& tokenizer, std::span<const TokenId> prompt,
                       std::vector<std::string> stops, std::vector<TokenId> stop_ids)
    : tokenizer_(tokenizer),
      decoder_(PromptTail(tokenizer, prompt)),
      stop_rule_(std::move(stops)),
      stop_ids_(std::move(stop_ids)) {}

AnswerText::Result AnswerText::Append(std::span<const TokenId> tokens) {
  Result result;
  for (const TokenId id : tokens) {
    ++result.taken;
    const bool ends = std::find(stop_ids_.begin(), stop_ids_.end(), id) != stop_ids_.end();
    if (ends || tokenizer_.IsSpecial(id)) {
      continue;
    }
    StopRule::Result piece = stop_rule_.Append(decoder_.Append(tokenizer_.Bytes(id)));
    result.text += piece.text;
    if (piece.stop >= 0) {
      stop_string_ = stop_rule_.stop(piece.stop);
      result.stopped = true;
      return result;
    }
  }
  return result;
}

std::string AnswerText::Flush() {
  std::string text = stop_rule_.Flush();
  text += decoder_.Flush();
  return text;
}

}  // namespace arborist::coordinator
