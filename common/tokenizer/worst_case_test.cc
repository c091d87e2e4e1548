// Long texts of one kind. A quadratic step would need hours for them; the bounds are far above what was
// measured.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>

#include "common/tokenizer/tokenizer.h"

namespace arborist {
namespace {

class WorstCaseTest : public ::testing::TestWithParam<const char*> {};

TEST_P(WorstCaseTest, AQuarterMegabyteOfOneKindIsEncodedAndDecodedInLinearTime) {
  const auto tokenizer = Tokenizer::Load(std::string(std::getenv("ARBORIST_SOURCE_DIR")) + GetParam());
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  for (const char* unit : {"a",
                           " ",
                           "\n",
                           "é",
                           "<|im_",
                           "'",
                           "\n ",
                           " \n",
                           "1",
                           "😀",
                           "\u200d",
                           "\u0301",
                           "a\u0323\u0301",
                           "e\u0301",
                           "\u1100\u1161\u11a8",
                           "漢",
                           "<",
                           "[BO",
                           "[BOS]",
                           "<|left|>  ",
                           "<tool",
                           "\u00a0",
                           "\t\r",
                           "a'",
                           "İ",
                           "ab1 -",
                           "\u2028",
                           "``",
                           "\ufffd",
                           "\u3042\u3099"}) {
    std::string text;
    while (text.size() < (1u << 18)) {
      text += unit;
    }
    for (const SpecialText special : {SpecialText::kAsToken, SpecialText::kAsText}) {
      const auto start = std::chrono::steady_clock::now();
      const auto ids = tokenizer->Encode(text, special);
      ASSERT_TRUE(ids.ok()) << unit << ids.status();
      const std::string decoded = tokenizer->Decode(*ids, false);
      const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
      EXPECT_LT(seconds.count(), 5.0) << unit;  // at most 0.4 s was measured, on a busy machine
      if (std::string(GetParam()).find("wide") == std::string::npos) {  // no normalizer: the text survives
        EXPECT_TRUE(decoded == text) << unit;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Tokenizers, WorstCaseTest,
                         ::testing::Values("/tests/golden/tokenizer", "/deploy/models/arborist-tiny/target",
                                           "/tests/golden/tokenizer/wide/nfc",
                                           "/tests/golden/tokenizer/wide/steps"));

}  // namespace
}  // namespace arborist
