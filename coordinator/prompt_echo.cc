#include "coordinator/prompt_echo.h"

#include <algorithm>

namespace arborist::coordinator {

PromptEcho::Piece PromptEcho::Next() {
  Piece piece{{}, prompt_.subspan(at_, std::min(kPieceTokens, prompt_.size() - at_))};
  for (const TokenId id : piece.tokens) {
    if (at_++ > 0 || tokenizer_.bos() != id) {
      piece.text += decoder_.Append(tokenizer_.Bytes(id));
    }
  }
  return piece;
}

}  // namespace arborist::coordinator
