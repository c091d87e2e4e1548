#include "common/tokenizer/normalizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <utf8proc.h>

#include "common/base/utf8.h"

namespace arborist {
namespace {

using Kind = NormalizerStep::Kind;

NormalizerStep Form(Kind kind) {
  NormalizerStep step;
  step.kind = kind;
  return step;
}

NormalizerStep Replace(const std::string& pattern, bool literal, const std::string& content) {
  NormalizerStep step = Form(Kind::kReplace);
  step.pattern = pattern;
  step.literal = literal;
  step.content = content;
  return step;
}

NormalizerStep Prepend(const std::string& content) {
  NormalizerStep step = Form(Kind::kPrepend);
  step.content = content;
  return step;
}

NormalizerStep Strip(bool left, bool right) {
  NormalizerStep step = Form(Kind::kStrip);
  step.left = left;
  step.right = right;
  return step;
}

std::string Normalized(const std::vector<NormalizerStep>& steps, std::string_view text) {
  const auto normalizer = Normalizer::Create(steps);
  EXPECT_TRUE(normalizer.ok()) << normalizer.status();
  Normalizer::Run run(*normalizer);
  const auto out = run.Apply(text);
  EXPECT_TRUE(out.ok()) << out.status();
  return std::string(*out);
}

TEST(NormalizerTest, NoStepsLeaveTheTextWhereItIs) {
  const auto normalizer = Normalizer::Create({});
  Normalizer::Run run(*normalizer);
  const std::string text = "e\u0301";
  EXPECT_EQ(run.Apply(text)->data(), text.data());
}

TEST(NormalizerTest, FormsComposeAndDecompose) {
  EXPECT_EQ(Normalized({Form(Kind::kNfc)}, "e\u0301 \u1100\u1161\u11a8 \u212b"), "\u00e9 \uac01 \u00c5");
  EXPECT_EQ(Normalized({Form(Kind::kNfd)}, "\u00e9"), "e\u0301");
  EXPECT_EQ(Normalized({Form(Kind::kNfkc)}, "\ufb01\u00b2"), "fi2");
  EXPECT_EQ(Normalized({Form(Kind::kNfkd)}, "\u1e9b\u0323"), "s\u0323\u0307");
  EXPECT_EQ(Normalized({Form(Kind::kNfc)}, ""), "");
  EXPECT_EQ(Normalized({Form(Kind::kNfc)}, std::string_view("\0e\u0301", 4)),
            std::string_view("\0\u00e9", 3));
}

TEST(NormalizerTest, EachStepWorksOnWhatTheOneBeforeLeft) {
  const std::vector<NormalizerStep> steps = {Replace("\\s+", false, "_"), Replace("a.", true, ""),
                                             Form(Kind::kLowercase), Prepend("> "), Strip(true, true)};
  EXPECT_EQ(Normalized(steps, "X \n\u3000Y a.\u0130\u03a3"), "> x_y_i\u0307\u03c3");
  EXPECT_EQ(Normalized(steps, ""), "");
  EXPECT_EQ(Normalized({Strip(true, false)}, "\u00a0 x "), "x ");
  EXPECT_EQ(Normalized({Strip(true, true)}, " \n "), "");
}

TEST(NormalizerTest, ABrokenPatternIsRefusedByName) {
  const auto normalizer = Normalizer::Create({Replace("(", false, "")});
  EXPECT_EQ(normalizer.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(normalizer.status().message()), ::testing::HasSubstr("normalizer: pattern=("));
}

// The short cut is right if no character that it lets pass is changed by composition, is a mark, or is what
// another character decomposes into behind the first place.
TEST(NormalizerTest, TheShortCutLetsPassOnlyWhatCompositionLeavesAlone) {
  int sure = 0;
  for (int32_t c = 1; c < 0x110000; ++c) {
    if (c >= 0xD800 && c < 0xE000) {
      continue;
    }
    std::string text;
    AppendUtf8(static_cast<uint32_t>(c), text);
    if (IsSurelyComposed(text)) {
      ++sure;
      ASSERT_EQ(utf8proc_get_property(c)->combining_class, 0) << c;
      utf8proc_uint8_t* composed = utf8proc_NFC(reinterpret_cast<const utf8proc_uint8_t*>(text.c_str()));
      ASSERT_EQ(reinterpret_cast<const char*>(composed), text) << c;
      std::free(composed);
    }
    utf8proc_uint8_t* decomposed = utf8proc_NFD(reinterpret_cast<const utf8proc_uint8_t*>(text.c_str()));
    std::string_view parts = reinterpret_cast<const char*>(decomposed);
    parts.remove_prefix(NextUtf8(parts).bytes);
    while (!parts.empty()) {
      const int bytes = NextUtf8(parts).bytes;
      ASSERT_FALSE(IsSurelyComposed(parts.substr(0, bytes))) << c;
      parts.remove_prefix(bytes);
    }
    std::free(decomposed);
  }
  EXPECT_GT(sure, 30'000);
}

}  // namespace
}  // namespace arborist
