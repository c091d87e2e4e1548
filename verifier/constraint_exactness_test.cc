// Sequences whose text must have a form: the same text however it is decoded, and always of that form.
#include <gtest/gtest.h>

#include "verifier/testing/constraint_cases.h"
#include "verifier/testing/constraint_checks.h"
#include "verifier/testing/drive.h"
#include "verifier/testing/recording_sink.h"
#include "verifier/testing/test_verifier.h"

namespace arborist::verifier {
namespace {

constexpr int kTokens = 64;

class ConstraintExactnessTest : public testing::TestWithParam<ConstraintCase> {
 protected:
  static OpenArgs Open(float temperature, uint64_t seed) {
    OpenArgs args = MakeOpen("request", RandomTokens(50, kSmallVocabulary, seed), kTokens, 16);
    args.sampling = {.temperature = temperature, .seed = seed};
    Constrain(GetParam(), args);
    return args;
  }
  static Subject Fake() { return {.make_model = nullptr, .vocabulary = kSmallVocabulary, .sampling = {}}; }
  static TestVerifierOptions Options() {
    TestVerifierOptions options;
    options.fake.vocabulary = kSmallVocabulary;
    return options;
  }
};

TEST_P(ConstraintExactnessTest, TextIsThatOfPlainDecodingWithAnyTreeAndAnyCompany) {
  for (const float temperature : {0.0f, 1.0f}) {
    Subject subject = Fake();
    subject.sampling = {.temperature = temperature, .seed = 21};
    CheckConstrainedText(subject, GetParam(), kTokens);
  }
}

TEST_P(ConstraintExactnessTest, EveryTextHasTheFormBesideAnySequenceAndEndsWithIt) {
  const int ended = CheckEveryTextHasTheForm(Fake(), GetParam(), 12, kTokens);
  EXPECT_GT(ended, GetParam().name.starts_with("BadWords") ? -1 : 0);
}

INSTANTIATE_TEST_SUITE_P(Constraints, ConstraintExactnessTest, testing::ValuesIn(ConstraintCases()),
                         [](const auto& info) { return info.param.name; });

// Row r takes the mask of the row before, which in a chain is its parent's.
absl::Status MaskOfTheParent(const kernels::LogitControlsArgs& args, StreamView stream) {
  std::vector<kernels::RowControls> rows(args.row.data, args.row.data + args.row.size);
  for (size_t row = rows.size(); row-- > 1;) {
    rows[row].mask = rows[row - 1].mask;
  }
  kernels::LogitControlsArgs altered = args;
  altered.row = {rows.data(), static_cast<int64_t>(rows.size())};
  return kernels::CpuKernels().logit_controls(altered, stream);
}

class ConstraintFaultsTest : public ConstraintExactnessTest {};

TEST_P(ConstraintFaultsTest, TheParentsMaskForTheChildIsNoticed) {
  kernels::KernelSet faulty = kernels::CpuKernels();
  faulty.logit_controls = MaskOfTheParent;
  TestVerifierOptions options = Options();
  options.kernels = &faulty;
  int noticed = 0;
  for (uint64_t seed = 1; seed <= 6; ++seed) {
    const OpenArgs args = Open(1, seed);
    const Decoded plain = DecodePlain(*TestVerifier(Options()), args);
    std::vector<TokenId> text = args.prompt;
    text.insert(text.end(), plain.tokens.begin(), plain.tokens.end());
    const Decoded trees =
        DecodeTrees(*TestVerifier(options), args, ReplayDrafter(text, kSmallVocabulary, 8, seed));
    noticed += !trees.closed.ok() || trees.tokens != plain.tokens ? 1 : 0;
  }
  EXPECT_GT(noticed, 0);
}

TEST_P(ConstraintFaultsTest, AStateThatForgetsTheOutputSoFarIsNoticed) {
  int noticed = 0;
  for (uint64_t seed = 1; seed <= 6; ++seed) {
    TestVerifier verifier(Options());
    const OpenArgs args = Open(1, seed);
    const Decoded plain = DecodePlain(*verifier, args);
    const auto kept = static_cast<ptrdiff_t>(plain.tokens.size() / 2);
    OpenArgs forgetful = args;  // the same positions, but the text begins here
    forgetful.prompt.insert(forgetful.prompt.end(), plain.tokens.begin(), plain.tokens.begin() + kept);
    forgetful.max_tokens -= static_cast<int>(kept);
    forgetful.controls.min_tokens = std::min(forgetful.controls.min_tokens, forgetful.max_tokens);
    const Decoded resumed = DecodePlain(*verifier, forgetful);
    noticed +=
        resumed.tokens != std::vector<TokenId>(plain.tokens.begin() + kept, plain.tokens.end()) ? 1 : 0;
  }
  EXPECT_GT(noticed, 0);
}

INSTANTIATE_TEST_SUITE_P(Constraints, ConstraintFaultsTest,
                         testing::Values(ConstraintCases()[0], ConstraintCases()[2], ConstraintCases()[3]),
                         [](const auto& info) { return info.param.name; });

// After two letters and an n, every letter leads to tens of thousands of states: the first try at that mask
// is too much work, the next one, with what the first has left behind, is not.
std::shared_ptr<const Constraint> CompileHostile() {
  std::string block;
  for (char letter = 'a'; letter <= 'z'; ++letter) {
    block += {letter, '?'};
  }
  std::string regex = "[a-m]{2}n";
  for (int i = 0; i < 50; ++i) {
    regex += "(" + block + "){20}";
  }
  return CompileSmall({.regex = regex});
}

TEST(ConstraintWorkTest, AnAcceptedNodeThatIsTooMuchWorkCutsTheRunAndTheTextIsThatOfPlainDecoding) {
  TestVerifierOptions options;
  options.fake.vocabulary = kSmallVocabulary;
  OpenArgs args = MakeOpen("request", RandomTokens(50, kSmallVocabulary, 4), /*max_tokens=*/4, 16);
  args.sampling = {.temperature = 1, .seed = 4};
  for (int32_t id = 0; id < 26; ++id) {
    args.controls.allowed_token_ids.push_back(TokenId{id});
  }
  args.constraint = CompileHostile();
  Constraint::State state = args.constraint->Start();
  for (const char letter : {'a', 'a', 'n'}) {
    state = *args.constraint->Advance(state, TokenId{letter - 'a'});
  }
  EXPECT_EQ(args.constraint->AllowedTokens(state), nullptr);
  for (int tries = 0; tries < 4 && args.constraint->AllowedTokens(state) == nullptr; ++tries) {
  }
  const Decoded plain = DecodePlain(*TestVerifier(options), args);
  ASSERT_TRUE(plain.closed.ok()) << plain.closed;
  ASSERT_EQ(plain.tokens.size(), 4u);

  args.constraint = CompileHostile();
  const size_t prompt = args.prompt.size();
  const Decoded trees = DecodeTrees(*TestVerifier(options), args, [&](std::span<const TokenId> tokens) {
    TokenTree tree = TokenTree::RootOnly(tokens.back());
    for (size_t i = tokens.size() - prompt; i < plain.tokens.size(); ++i) {
      tree.parent.push_back(tree.nodes() - 1);
      tree.token.push_back(plain.tokens[i]);
      tree.score.push_back(tree.score.back() - 1);
    }
    return tree;
  });
  ASSERT_TRUE(trees.closed.ok()) << trees.closed;
  EXPECT_EQ(trees.tokens, plain.tokens);
  EXPECT_EQ(trees.log_probs, plain.log_probs);
  EXPECT_EQ(trees.rounds, 2);
}

TEST(ConstraintOpenTest, WhereNothingMayComeFirstTheSequenceIsRefused) {
  TestVerifierOptions options;
  options.fake.vocabulary = kSmallVocabulary;
  TestVerifier verifier(std::move(options));
  const auto refused = [&](const ConstraintSpec& spec, const std::function<void(OpenArgs&)>& change) {
    OpenArgs args = MakeOpen("request", RandomTokens(10, kSmallVocabulary, 1), kTokens, 16);
    args.constraint = CompileSmall(spec);
    args.stop_ids = spec.stop_ids;
    change(args);
    RecordingSink sink;
    const auto handle = verifier->Open(std::move(args), &sink);
    EXPECT_EQ(handle.status().code(), absl::StatusCode::kInvalidArgument);
    return std::string(handle.status().message());
  };
  EXPECT_NE(refused({.regex = "a", .bad_words = {"a"}}, [](OpenArgs&) {}).find("sequence.sampling.regex="),
            std::string::npos);
  EXPECT_NE(refused({.regex = "a"}, [](OpenArgs& args) { args.controls.allowed_token_ids = {TokenId{1}}; })
                .find("sequence.sampling.regex="),
            std::string::npos);
  EXPECT_NE(refused({.regex = "ab"},
                    [](OpenArgs& args) {
                      args.output_so_far = {TokenId{0}, TokenId{2}};
                    })
                .find("output_so_far[1]=2"),
            std::string::npos);
  EXPECT_NE(refused({.regex = "ab"},
                    [](OpenArgs& args) {
                      args.output_so_far = {TokenId{0}, TokenId{1}};
                    })
                .find("sequence.sampling.regex="),
            std::string::npos);
}

TEST(ConstraintOpenTest, BadWordsBeginInACharacterThatThePromptLeavesUnfinished) {
  std::vector<std::string> bytes(kSmallVocabulary, "a");
  bytes[0] = "\xC3";
  bytes[1] = "\xA9";
  TestVerifierOptions options;
  options.fake.vocabulary = kSmallVocabulary;
  TestVerifier verifier(std::move(options));
  const auto constraint = *Constraint::Compile({.bad_words = {"\xC3\xA9"}},
                                               std::make_shared<const TokenVocabulary>(std::move(bytes)));
  for (const int32_t last : {0, 2}) {
    OpenArgs args = MakeOpen("request", {TokenId{2}, TokenId{last}}, kTokens, 16);
    args.constraint = constraint;
    args.controls.allowed_token_ids = {TokenId{1}};  // the rest of the character, and nothing else
    RecordingSink sink;
    const auto handle = verifier->Open(std::move(args), &sink);
    EXPECT_EQ(handle.ok(), last != 0) << handle.status();
    if (handle.ok()) {
      verifier->Cancel(*handle);
      EXPECT_EQ(sink.WaitClosed().code(), absl::StatusCode::kCancelled);
    } else {
      EXPECT_NE(handle.status().message().find("sequence.sampling.bad_words="), std::string::npos);
    }
  }
}

}  // namespace
}  // namespace arborist::verifier
