#pragma once

#include <span>
#include <string>
#include <vector>

#include "common/base/ids.h"
#include "common/tokenizer/stream_decoder.h"
#include "common/tokenizer/tokenizer.h"
#include "coordinator/sequence_path.h"
#include "coordinator/stop_rule.h"

namespace arborist::coordinator {

struct TextRules {
  std::vector<std::string> stops;
  // The client has the prompt's text too: bytes at its end that no answer completes to a character are then
  // shown (as U+FFFD), so that all text together is that of all tokens.
  bool echo = false;
};

// Turns committed tokens into the text of the answer, token by token, until a stop string is complete.
// Special tokens and the id that ends the answer have no text. Text of the first min_tokens tokens is no part
// of a stop string.
class AnswerText {
 public:
  AnswerText(const Tokenizer& tokenizer, const PathStart& start, TextRules rules);

  struct Result {
    std::string text;  // certain now
    size_t taken = 0;  // tokens up to and with the one that completed a stop string; all if none did
    bool stopped = false;
  };
  Result Append(std::span<const TokenId> tokens);

  // The answer ended without a stop string: the rest of the text.
  std::string Flush();

  const std::string& stop_string() const { return stop_string_; }  // "" if none ended the answer

 private:
  const Tokenizer& tokenizer_;
  StreamDecoder decoder_;
  StopRule stop_rule_;
  const std::vector<TokenId> stop_ids_;
  int32_t free_tokens_;  // tokens to come whose text is no part of a stop string
  std::string stop_string_;
};

}  // namespace arborist::coordinator
