#include "common/tokenizer/stream_decoder.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <random>

#include "common/base/utf8.h"
#include "common/tokenizer/tokenizer.h"

namespace arborist {
namespace {

constexpr char kBad[] = "\xEF\xBF\xBD";

TEST(StreamDecoderTest, HoldsAnUnfinishedCharacterUntilItIsComplete) {
  StreamDecoder decoder;
  EXPECT_EQ(decoder.Append("a\xF0"), "a");
  EXPECT_EQ(decoder.Append("\x9F\x98"), "");
  EXPECT_EQ(decoder.Append("\x80z"), "\xF0\x9F\x98\x80z");
  EXPECT_EQ(decoder.Flush(), "");
}

TEST(StreamDecoderTest, FlushTurnsAnUnfinishedCharacterIntoOneReplacement) {
  StreamDecoder decoder;
  EXPECT_EQ(decoder.Append("a\xE6\xBC"), "a");
  EXPECT_EQ(decoder.Flush(), kBad);
  EXPECT_EQ(decoder.Append("b"), "b");
}

TEST(StreamDecoderTest, EachMaximalInvalidSubpartBecomesOneReplacement) {
  const auto decode = [](std::string_view bytes) {
    StreamDecoder decoder;
    std::string text = decoder.Append(bytes);
    return text + decoder.Flush();
  };
  const std::string bad = kBad;
  EXPECT_EQ(decode("\x80"), bad);
  EXPECT_EQ(decode("\xC0\xAF"), bad + bad);                               // overlong: neither byte can stand
  EXPECT_EQ(decode("\xE0\x80\x80"), bad + bad + bad);                     // overlong in three
  EXPECT_EQ(decode("\xED\xA0\x80"), bad + bad + bad);                     // a surrogate
  EXPECT_EQ(decode("\xF0\x9F\x98(x"), bad + "(x");                        // three good bytes, then text
  EXPECT_EQ(decode("\xF4\x90\x80\x80"), bad + bad + bad + bad);           // above U+10FFFF
  EXPECT_EQ(decode("\xF8\x88\x80\x80"), bad + bad + bad + bad);           // no such lead byte
  EXPECT_EQ(decode("a\xF1\x80\x80\xE1\x80\xC2"), "a" + bad + bad + bad);  // Unicode's own example
}

TEST(StreamDecoderTest, ThePromptsUnfinishedCharacterIsCompletedInTheText) {
  StreamDecoder decoder("hello \xF0\x9F");
  EXPECT_EQ(decoder.Append("\x98"), "");
  EXPECT_EQ(decoder.Append("\x80!"), "\xF0\x9F\x98\x80!");
}

TEST(StreamDecoderTest, ThePromptsBrokenBytesAreNotShown) {
  StreamDecoder decoder("hello \xF0\x9F");
  EXPECT_EQ(decoder.Append("abc"), "abc");
  StreamDecoder continued("\xF0\x9F");
  EXPECT_EQ(continued.Append("\x98 x"), std::string(kBad) + " x");  // one byte of it was the stream's
  StreamDecoder unused("\xF0\x9F");
  EXPECT_EQ(unused.Flush(), "");
  StreamDecoder complete("caf\xC3\xA9");
  EXPECT_EQ(complete.Append("\xA9"), kBad);  // the prompt was whole, so this byte stands alone
}

TEST(StreamDecoderTest, TextIsTheSameForEveryWayOfCuttingTheBytes) {
  std::mt19937 random(7);
  for (int round = 0; round < 2000; ++round) {
    std::string bytes;
    for (int i = 0; i < 12; ++i) {
      const uint32_t kinds[] = {0x41, 0xE9, 0x6F22, 0x1F600};
      if (random() % 3 == 0) {
        bytes.push_back(static_cast<char>(random() % 256));
      } else {
        AppendUtf8(kinds[random() % 4], bytes);
      }
    }
    StreamDecoder whole;
    std::string expected = whole.Append(bytes);
    expected += whole.Flush();
    StreamDecoder pieces;
    std::string got;
    for (size_t at = 0; at < bytes.size();) {
      const size_t count = 1 + random() % 4;
      got += pieces.Append(std::string_view(bytes).substr(at, count));
      ASSERT_EQ(ValidUtf8Prefix(got), got.size());
      at += count;
    }
    got += pieces.Flush();
    ASSERT_EQ(got, expected);
  }
}

std::string RandomBytes(std::mt19937& random, int parts) {
  const uint32_t characters[] = {0x41, 0xE9, 0x301, 0x6F22, 0x200D, 0x1F600, 0x10FFFF};
  std::string bytes;
  for (int i = 0; i < parts; ++i) {
    if (random() % 4 == 0) {
      bytes.push_back(static_cast<char>(random() % 256));
    } else {
      AppendUtf8(characters[random() % 7], bytes);
      bytes.resize(bytes.size() - (random() % 5 == 0));  // some characters lack their end
    }
  }
  return bytes;
}

std::string Whole(std::string_view bytes) {
  StreamDecoder decoder;
  std::string text = decoder.Append(bytes);
  return text + decoder.Flush();
}

TEST(StreamDecoderTest, PromptAndTextTogetherAreTheWholeDecodeWhereverTheBytesAreCut) {
  std::mt19937 random(19);
  int continued = 0, left = 0;
  for (int round = 0; round < 20'000; ++round) {
    const std::string bytes = RandomBytes(random, 8);
    const size_t cut = random() % (bytes.size() + 1);
    const std::string_view prompt = std::string_view(bytes).substr(0, cut);
    const std::string_view tail = IncompleteUtf8Tail(prompt);
    std::string expected = Whole(bytes);
    const std::string shown = Whole(prompt.substr(0, cut - tail.size()));
    ASSERT_EQ(expected.substr(0, shown.size()), shown);
    expected.erase(0, shown.size());
    if (!tail.empty()) {
      const Utf8Step first = NextUtf8(std::string_view(bytes).substr(cut - tail.size()));
      if (first.bytes ==
          static_cast<int>(tail.size())) {  // the text does not go on with the prompt's character
        expected.erase(0, kReplacementCharacter.size());
        ++left;
      } else {
        ++continued;
      }
    }
    StreamDecoder decoder(prompt);
    std::string got;
    for (size_t at = cut; at < bytes.size();) {
      const size_t count = 1 + random() % 3;
      got += decoder.Append(std::string_view(bytes).substr(at, count));
      ASSERT_EQ(ValidUtf8Prefix(got), got.size());     // whole characters at any time
      ASSERT_EQ(expected.substr(0, got.size()), got);  // and nothing that changes later
      at += count;
    }
    got += decoder.Flush();
    ASSERT_EQ(got, expected);
  }
  EXPECT_GT(continued, 500);
  EXPECT_GT(left, 500);
}

TEST(StreamDecoderTest, TokensOneByOneGiveTheTextOfAllTokens) {
  const std::string golden = std::string(std::getenv("ARBORIST_SOURCE_DIR")) + "/tests/golden/tokenizer";
  std::mt19937 random(23);
  for (const char* name : {"", "/wide/nfc", "/wide/steps"}) {
    const auto tokenizer = Tokenizer::Load(golden + name);
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
    for (int round = 0; round < 2000; ++round) {
      std::vector<TokenId> ids;
      for (int i = 0; i < 12; ++i) {  // special tokens, single bytes, any token, ids without a meaning
        const int32_t bounds[] = {9, 265, 265, tokenizer->size(), tokenizer->size() + 4};
        ids.push_back(TokenId{static_cast<int32_t>(random() % bounds[random() % 5])});
      }
      for (const bool skip_special : {false, true}) {
        const std::string expected = tokenizer->Decode(ids, skip_special);
        StreamDecoder decoder;
        std::string got;
        for (const TokenId id : ids) {
          if (!skip_special || !tokenizer->IsSpecial(id)) {
            got += decoder.Append(tokenizer->Bytes(id));
          }
          ASSERT_EQ(expected.substr(0, got.size()), got);
          ASSERT_EQ(ValidUtf8Prefix(got), got.size());
        }
        got += decoder.Flush();
        ASSERT_EQ(got, expected);
      }
    }
  }
}

TEST(Utf8Test, IncompleteTailIsOnlyWhatCanStillBecomeACharacter) {
  EXPECT_EQ(IncompleteUtf8Tail("a\xE6\xBC"), "\xE6\xBC");
  EXPECT_EQ(IncompleteUtf8Tail("a\xE6\xBC\xA2"), "");
  EXPECT_EQ(IncompleteUtf8Tail("\x80\x80\x80"), "");
  EXPECT_EQ(IncompleteUtf8Tail(""), "");
  EXPECT_EQ(IncompleteUtf8Tail("\xF5\x80"), "");
}

}  // namespace
}  // namespace arborist
