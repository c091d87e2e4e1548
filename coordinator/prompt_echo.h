#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "common/base/ids.h"
#include "common/tokenizer/stream_decoder.h"
#include "common/tokenizer/tokenizer.h"

namespace arborist::coordinator {

// Repeats a prompt in pieces. The text is that of all tokens, special ones included, but for the bos at its
// start, which is the tokenizer's; a character that the prompt only begins is left to the answer.
class PromptEcho {
 public:
  struct Piece {
    std::string text;
    std::span<const TokenId> tokens;  // at most kPieceTokens
  };
  static constexpr size_t kPieceTokens = 4096;

  // Both outlive the echo.
  PromptEcho(const Tokenizer& tokenizer, std::span<const TokenId> prompt)
      : tokenizer_(tokenizer), prompt_(prompt) {}

  bool done() const { return at_ == prompt_.size(); }
  Piece Next();

 private:
  const Tokenizer& tokenizer_;
  std::span<const TokenId> prompt_;
  size_t at_ = 0;
  StreamDecoder decoder_;
};

}  // namespace arborist::coordinator
