#include "coordinator/answer_text.h"

#include <algorithm>

#include "common/base/utf8.h"

namespace arborist::coordinator {
namespace {

// One has at most 3 bytes before its last.
constexpr size_t kMostUnfinishedBytes = 3;

std::string UnfinishedCharacter(const Tokenizer& tokenizer, std::span<const TokenId> prompt) {
  std::string bytes;
  for (size_t i = prompt.size(); i > 0 && bytes.size() < kMostUnfinishedBytes; --i) {
    bytes.insert(0, tokenizer.Bytes(prompt[i - 1]));
  }
  return std::string(IncompleteUtf8Tail(bytes));
}

StreamDecoder DecoderAfter(const std::string& unfinished, bool echo) {
  StreamDecoder decoder = echo ? StreamDecoder() : StreamDecoder(unfinished);
  if (echo) {
    decoder.Append(unfinished);
  }
  return decoder;
}

}  // namespace

AnswerText::AnswerText(const Tokenizer& tokenizer, const PathStart& start, TextRules rules)
    : tokenizer_(tokenizer),
      decoder_(DecoderAfter(UnfinishedCharacter(tokenizer, start.prompt), rules.echo)),
      stop_rule_(std::move(rules.stops)),
      stop_ids_(start.sampling.stop_ids),
      free_tokens_(start.sampling.min_tokens) {}

AnswerText::Result AnswerText::Append(std::span<const TokenId> tokens) {
  Result result;
  for (const TokenId id : tokens) {
    ++result.taken;
    const bool is_free = free_tokens_ > 0;
    free_tokens_ -= is_free ? 1 : 0;
    const bool ends = std::find(stop_ids_.begin(), stop_ids_.end(), id) != stop_ids_.end();
    if (ends || tokenizer_.IsSpecial(id)) {
      continue;
    }
    std::string text = decoder_.Append(tokenizer_.Bytes(id));
    if (is_free) {
      result.text += text;
      continue;
    }
    StopRule::Result piece = stop_rule_.Append(text);
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
