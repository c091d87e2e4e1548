#include "coordinator/prompt_echo.h"

#include <gtest/gtest.h>

#include "common/base/utf8.h"
#include "coordinator/testing/flow_fixture.h"

namespace arborist::coordinator {
namespace {

using testing::ByteIds;
using testing::SharedTokenizer;

struct Echoed {
  std::string text;
  std::vector<TokenId> tokens;
  int pieces = 0;
};

Echoed Repeat(const Tokenizer& tokenizer, const std::vector<TokenId>& prompt) {
  PromptEcho echo(tokenizer, prompt);
  Echoed all;
  while (!echo.done()) {
    const PromptEcho::Piece piece = echo.Next();
    EXPECT_LE(piece.tokens.size(), PromptEcho::kPieceTokens);
    all.text += piece.text;
    all.tokens.insert(all.tokens.end(), piece.tokens.begin(), piece.tokens.end());
    ++all.pieces;
  }
  return all;
}

TEST(PromptEchoTest, ALongPromptComesInPiecesAndNoneEndsInsideACharacter) {
  std::string text;
  while (text.size() <= 3 * PromptEcho::kPieceTokens) {
    text += "x\xF0\x9F\x98\x80\xE6\xBC\xA2";
  }
  const std::vector<TokenId> prompt = ByteIds(text);
  PromptEcho echo(SharedTokenizer(), prompt);
  std::string got;
  while (!echo.done()) {
    const std::string piece = echo.Next().text;
    EXPECT_EQ(piece.find("\xEF\xBF\xBD"), std::string::npos);
    EXPECT_EQ(ValidUtf8Prefix(piece), piece.size());
    got += piece;
  }
  EXPECT_EQ(got, text);
  EXPECT_EQ(Repeat(SharedTokenizer(), prompt).tokens, prompt);
  EXPECT_EQ(Repeat(SharedTokenizer(), prompt).pieces, 4);
}

TEST(PromptEchoTest, ACharacterThatThePromptOnlyBeginsIsLeftToTheAnswer) {
  const std::vector<TokenId> prompt = ByteIds("ab\xF0\x9F\x98");
  EXPECT_EQ(Repeat(SharedTokenizer(), prompt).text, "ab");
  EXPECT_EQ(Repeat(SharedTokenizer(), prompt).tokens, prompt);
}

TEST(PromptEchoTest, MarksAreShownAsTheyAre) {
  const std::string text = "<|im_user|>user<|im_middle|>hi<|im_end|>";
  EXPECT_EQ(Repeat(SharedTokenizer(), *SharedTokenizer().Encode(text, SpecialText::kAsToken)).text, text);
}

}  // namespace
}  // namespace arborist::coordinator
