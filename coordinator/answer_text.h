#pragma once

#include <span>
#include <string>
#include <vector>

#include "common/base/ids.h"
#include "common/tokenizer/stream_decoder.h"
#include "common/tokenizer/tokenizer.h"
#include "coordinator/stop_rule.h"

namespace arborist::coordinator {

// Turns committed tokens into the text of the answer, token by token, until a stop string is complete.
// Special tokens and the id that ends the answer have no text.
class AnswerText {
 public:
  AnswerText(const Tokenizer& tokenizer, std::span<const TokenId> prompt, std::vector<std::string> stops,
             std::vector<TokenId> stop_ids);

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
  std::vector<TokenId> stop_ids_;
  std::string stop_string_;
};

}  // namespace arborist::coordinator
