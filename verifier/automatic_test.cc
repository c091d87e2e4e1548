// AUTO through the verifier: who is told what, and that the text never depends on it.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "kernels/backend.h"
#include "verifier/testing/lifecycle_support.h"

namespace arborist::verifier {
namespace {

OpenArgs Automatic(const std::string& id, int max_tokens = 30, int tree_nodes = 8) {
  OpenArgs args = Request(id, 20, max_tokens, tree_nodes);
  args.automatic = true;
  return args;
}

// Follows the budget, as a drafter does. `plain` counts tokens of Decodes, `trees` rounds.
Decoded Follow(Verifier& verifier, OpenArgs args, const Drafter& drafter, int& plain, int& trees) {
  Decoded decoded;
  RecordingSink sink;
  std::vector<TokenId> tokens = args.prompt;
  const size_t known = tokens.size();
  const int max_tokens = args.max_tokens;
  const auto handle = verifier.Open(std::move(args), &sink);
  sink.WaitReady();
  int budget = sink.first_budget();
  for (int64_t round = 1; decoded.finish == FinishReason::kNone; ++round) {
    if (budget > 0) {
      TokenTree tree = drafter(tokens);
      CutToPrefix(tree, std::min(tree.nodes(), budget + 1));
      EXPECT_TRUE(verifier.SubmitTree(*handle, round, tree).ok());
      ++trees;
    } else {
      EXPECT_TRUE(verifier.SubmitDecodeUntilDraftingPays(*handle, round, max_tokens).ok());
    }
    for (bool last = false; !last;) {
      const auto committed = sink.TakeCommitted();
      EXPECT_TRUE(committed.has_value());
      if (!committed.has_value()) {
        return decoded;
      }
      last = committed->last;
      plain += budget == 0 ? 1 : 0;
      EXPECT_TRUE(budget > 0 || last || committed->next_budget == 0)
          << "a Decode goes on though drafting pays";
      tokens.insert(tokens.end(), committed->tokens.begin(), committed->tokens.end());
      Append(*committed, known, decoded);
      if (last) {
        budget = committed->next_budget;
      }
    }
  }
  verifier.Finish(*handle);
  decoded.closed = sink.WaitClosed();
  return decoded;
}

TEST(AutomaticTest, TextDoesNotDependOnWhatIsDraftedWhen) {
  TestVerifier verifier({});
  const OpenArgs args = Automatic("r", 400);
  OpenArgs off = args;
  off.automatic = false;
  const Decoded expected = DecodePlain(*verifier, off);
  std::vector<TokenId> text = args.prompt;
  text.insert(text.end(), expected.tokens.begin(), expected.tokens.end());
  int plain = 0, trees = 0;
  for (int i = 0; i < 4; ++i) {
    OpenArgs request = args;
    request.key.request_id += std::to_string(i);
    const Decoded decoded = Follow(*verifier, request, ReplayDrafter(text, kVocabulary, 8, 3), plain, trees);
    EXPECT_EQ(decoded.tokens, expected.tokens);
    EXPECT_EQ(decoded.log_probs, expected.log_probs);
    EXPECT_TRUE(decoded.closed.ok()) << decoded.closed;
  }
  EXPECT_GT(trees, 0);
  ExpectAllPagesFree(verifier);
}

TEST(AutomaticTest, TreesThatTakeTooLongAreGivenUp) {
  TestVerifier verifier({});
  int plain = 0, trees = 0;
  const auto slowly = [](std::span<const TokenId> tokens) {
    std::this_thread::sleep_for(std::chrono::milliseconds(3));
    return Chain(tokens.back(), 8);
  };
  Follow(*verifier, Automatic("r", 1500), slowly, plain, trees);
  EXPECT_GT(plain, 10 * trees);
}

TEST(AutomaticTest, WhatControlledStepsTakeChangesNoBudgetOfOthers) {
  kernels::KernelSet slow = kernels::KernelsFor(DeviceKind::kCpu);
  slow.logit_controls = [](const kernels::LogitControlsArgs& args, StreamView stream) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    return kernels::KernelsFor(DeviceKind::kCpu).logit_controls(args, stream);
  };
  std::atomic<double> plain_rate{0};
  TestVerifierOptions options;
  options.kernels = &slow;
  options.verifier.measure_costs = true;
  options.verifier.on_budget_report = [&](const BudgetReport& report) { plain_rate = report.plain_rate; };
  TestVerifier verifier(std::move(options));
  const auto rate = [&](const std::string& id) {
    int plain = 0, trees = 0;
    plain_rate = 0;
    Follow(
        *verifier, Automatic(id, 10), [](std::span<const TokenId> tokens) { return Chain(tokens.back(), 8); },
        plain, trees);
    return plain_rate.load();
  };
  const double before = rate("before");
  ASSERT_GT(before, 0);
  OpenArgs controlled = Request("controlled", 20, 60, 8);
  controlled.controls.top_log_probs = 1;
  EXPECT_EQ(DecodePlain(*verifier, controlled).tokens.size(), 60u);
  EXPECT_GT(rate("after"), before / 10) << before;  // there are reports once a second
}

TEST(AutomaticTest, CostsMeasuredAtStartLeaveThePagesFree) {
  TestVerifierOptions options;
  options.verifier.measure_costs = true;
  TestVerifier verifier(std::move(options));
  ExpectAllPagesFree(verifier);
  int plain = 0, trees = 0;
  const Decoded decoded = Follow(
      *verifier, Automatic("r", 50), [](std::span<const TokenId> tokens) { return Chain(tokens.back(), 8); },
      plain, trees);
  EXPECT_EQ(decoded.tokens.size(), 50u);
}

TEST(AutomaticTest, ASequenceThatDoesNotFollowIsToldItsTreeNodes) {
  TestVerifier verifier({});
  RecordingSink sink;
  const auto handle = verifier->Open(Request("r"), &sink);
  sink.WaitReady();
  EXPECT_EQ(sink.first_budget(), 8);
  ASSERT_TRUE(verifier->SubmitDecodeUntilDraftingPays(*handle, 1, 1).ok());
  EXPECT_EQ(sink.TakeCommitted()->next_budget, 8);
  verifier->Finish(*handle);
  EXPECT_TRUE(sink.WaitClosed().ok());
}

TEST(AutomaticTest, AnOrdinaryDecodeIsNeverEndedEarly) {
  TestVerifier verifier({});
  RecordingSink sink;
  const auto handle = verifier->Open(Automatic("r"), &sink);
  ASSERT_TRUE(verifier->SubmitDecode(*handle, 1, 20).ok());
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(sink.TakeCommitted()->last, i == 19);
  }
  verifier->Finish(*handle);
  EXPECT_TRUE(sink.WaitClosed().ok());
}

}  // namespace
}  // namespace arborist::verifier
