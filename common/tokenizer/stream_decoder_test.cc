#include "common/tokenizer/stream_decoder.h"

#include <gtest/gtest.h>

#include <random>

#include "common/tokenizer/utf8.h"

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

TEST(Utf8Test, IncompleteTailIsOnlyWhatCanStillBecomeACharacter) {
  EXPECT_EQ(IncompleteUtf8Tail("a\xE6\xBC"), "\xE6\xBC");
  EXPECT_EQ(IncompleteUtf8Tail("a\xE6\xBC\xA2"), "");
  EXPECT_EQ(IncompleteUtf8Tail("\x80\x80\x80"), "");
  EXPECT_EQ(IncompleteUtf8Tail(""), "");
  EXPECT_EQ(IncompleteUtf8Tail("\xF5\x80"), "");
}

}  // namespace
}  // namespace arborist
