// Long texts of one kind: a text four times as long takes about four times as long. Time is this thread's
// own, so that a busy machine changes little.
#include <gtest/gtest.h>
#include <time.h>

#include <cstdlib>
#include <optional>
#include <string>
#include <utility>

#include "common/tokenizer/tokenizer.h"

namespace arborist {
namespace {

double ThreadSeconds() {
  timespec now = {};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

std::string Repeated(const char* unit, size_t bytes) {
  std::string text;
  while (text.size() < bytes) {
    text += unit;
  }
  return text;
}

class WorstCaseTest : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    auto tokenizer = Tokenizer::Load(std::string(std::getenv("ARBORIST_SOURCE_DIR")) + GetParam());
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
    tokenizer_ = *std::move(tokenizer);
  }

  // Of encoding and decoding; `decoded` gets what comes back.
  double Seconds(const std::string& text, SpecialText special, std::string& decoded) const {
    const double start = ThreadSeconds();
    const auto ids = tokenizer_->Encode(text, special);
    EXPECT_TRUE(ids.ok()) << ids.status();
    decoded = ids.ok() ? tokenizer_->Decode(*ids, false) : "";
    return ThreadSeconds() - start;
  }

  std::optional<Tokenizer> tokenizer_;
};

TEST_P(WorstCaseTest, AQuarterMegabyteOfOneKindIsEncodedAndDecodedInLinearTime) {
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
    const std::string text = Repeated(unit, 1u << 18);
    const std::string part = Repeated(unit, 1u << 16);
    for (const SpecialText special : {SpecialText::kAsToken, SpecialText::kAsText}) {
      std::string decoded;
      double whole_seconds = 0;
      double bound = 0;
      // A quadratic step is sixteen times as slow every time; a disturbance is not.
      for (int attempt = 0; attempt < 3 && whole_seconds >= bound; ++attempt) {
        bound = 0.01 + 8 * Seconds(part, special, decoded);
        whole_seconds = Seconds(text, special, decoded);
      }
      EXPECT_LT(whole_seconds, bound) << unit;
      EXPECT_LT(whole_seconds, 5.0) << unit;  // at most 0.4 s was measured, on a busy machine
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
