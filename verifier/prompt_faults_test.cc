// Faults that the checks of prompts' log-probabilities must find, planted on purpose.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "verifier/testing/lifecycle_support.h"

namespace arborist::verifier {
namespace {

constexpr int kPrompt = 30;
constexpr int kChunk = 20;

// Called by the kernel with the tokens of the step's rows that are to be scored.
std::function<void(std::vector<TokenId>& forced)> g_alter_forced;

absl::Status ScoreAltered(const kernels::TokenLogProbArgs& args, StreamView stream) {
  std::vector<TokenId> forced(args.forced.data, args.forced.data + args.forced.size);
  g_alter_forced(forced);
  kernels::TokenLogProbArgs altered = args;
  altered.forced = {forced.data(), args.forced.size};
  return kernels::CpuKernels().token_log_prob(altered, stream);
}

// Whether the values of two prompts that are scored together are those that their tokens have as output.
class PromptFaultsTest : public testing::Test {
 protected:
  struct Fault {
    std::function<void(std::vector<TokenId>& forced)> alter_forced = [](auto&) {};
    WrappedModel::Before before = nullptr;
  };

  static bool Unnoticed(const Fault& fault) {
    std::vector<std::vector<TokenId>> texts;
    std::vector<std::vector<float>> values;
    for (int i = 0; i < 2; ++i) {
      OpenArgs args = MakeOpen("plain", RandomTokens(1, kVocabulary, 5 + i), kPrompt - 1, 0);
      args.sampling = {.temperature = 1, .seed = 3};
      const Decoded plain = DecodePlain(*TestVerifier(TestVerifierOptions()), args);
      texts.push_back(args.prompt);
      texts.back().insert(texts.back().end(), plain.tokens.begin(), plain.tokens.end());
      values.push_back(plain.log_probs);
    }
    g_alter_forced = fault.alter_forced;
    kernels::KernelSet kernels = kernels::CpuKernels();
    kernels.token_log_prob = ScoreAltered;
    TestVerifierOptions options;
    options.kernels = &kernels;
    options.verifier.prefill_chunk = kChunk;
    options.before = fault.before;
    StepGate gate;  // both are there before the first chunk: from the second one on they share steps
    if (options.before == nullptr) {
      options.before = gate.hook();
    } else {
      gate.Open();
    }
    TestVerifier verifier(std::move(options));
    RecordingSink sinks[2];
    for (int i = 0; i < 2; ++i) {
      OpenArgs args = MakeOpen("prompt" + std::to_string(i), texts[i], 1, 0);
      args.controls.prompt_log_probs = true;
      EXPECT_TRUE(verifier->Open(args, &sinks[i]).ok());
    }
    gate.Open();
    bool same = true;
    for (int i = 0; i < 2; ++i) {
      sinks[i].WaitReady();
      same = same && sinks[i].prompt_log_probs() == values[i];
    }
    verifier.Destroy();
    return same;
  }
};

TEST_F(PromptFaultsTest, WithoutAFaultValuesAreEqual) { EXPECT_TRUE(Unnoticed({})); }

TEST_F(PromptFaultsTest, TheTokenOfTheNextRowIsNoticed) {
  EXPECT_FALSE(Unnoticed({.alter_forced = [](std::vector<TokenId>& forced) {
    std::rotate(forced.begin(), forced.begin() + 1, forced.end());
  }}));
}

TEST_F(PromptFaultsTest, ALostBorderOfAChunkIsNoticed) {
  // The last row of a chunk is scored with its own chunk's first token, as if the next chunk were not there.
  EXPECT_FALSE(Unnoticed({.alter_forced = [](std::vector<TokenId>& forced) {
    if (forced.size() == kChunk) {
      forced.back() = forced.front();
    }
  }}));
}

TEST_F(PromptFaultsTest, ATokenThatIsNotScoredIsNoticed) {
  EXPECT_FALSE(Unnoticed({.alter_forced = [](std::vector<TokenId>& forced) { forced[0] = TokenId{-1}; }}));
}

TEST_F(PromptFaultsTest, TokensOfAnotherSequenceAreNoticed) {
  // 20 rows of the first, 20 of the second, then 9 of each.
  constexpr int kLeft = kPrompt - 1 - kChunk;
  bool shared = false;
  const bool unnoticed = Unnoticed({.alter_forced = [&](std::vector<TokenId>& forced) {
    if (forced.size() == 2 * kLeft) {
      shared = true;
      std::rotate(forced.begin(), forced.begin() + kLeft, forced.end());
    }
  }});
  EXPECT_TRUE(shared);
  EXPECT_FALSE(unnoticed);
}

TEST_F(PromptFaultsTest, AKeyOfARowLeftOutIsNoticed) {
  EXPECT_FALSE(Unnoticed({.before = [](StepBatch& batch, KvPlanes&) {
    const int row = batch.rows - 1;
    if (batch.tail_count[row] > 1) {
      --batch.tail_count[row];
    }
    return absl::OkStatus();
  }}));
}

}  // namespace
}  // namespace arborist::verifier
