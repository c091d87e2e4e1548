#include "verifier/testing/control_checks.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <thread>

#include "verifier/testing/control_cases.h"
#include "verifier/testing/drive.h"

namespace arborist::verifier {
namespace {

constexpr int kNodes = 16;
constexpr int kPrompt = 40;

TestVerifierOptions SmallSteps(const Subject& subject) {
  TestVerifierOptions options = OptionsOf(subject);
  options.verifier.max_context = 200;
  options.verifier.max_tree_nodes = kNodes;
  options.verifier.max_sequences = 4;
  options.verifier.max_rows = 80;
  options.verifier.max_logits_rows = 4 * (kNodes + 1);
  return options;
}

OpenArgs OpenFor(const Subject& subject, std::vector<TokenId> prompt, int tokens) {
  OpenArgs args = MakeOpen("request", std::move(prompt), tokens, kNodes);
  args.sampling = subject.sampling;
  return args;
}

std::vector<TokenId> Text(const OpenArgs& args, const Decoded& decoded) {
  std::vector<TokenId> text = args.prompt;
  text.insert(text.end(), decoded.tokens.begin(), decoded.tokens.end());
  return text;
}

// Both must say the same; returns it.
std::vector<TokenId> PlainAndTrees(TestVerifier& verifier, const Subject& subject, const OpenArgs& args) {
  const Decoded plain = DecodePlain(*verifier, args);
  const Decoded trees = DecodeTrees(
      *verifier, args, ReplayDrafter(Text(args, plain), subject.vocabulary, kNodes, std::random_device{}()));
  EXPECT_FALSE(plain.tokens.empty()) << plain.closed;
  EXPECT_EQ(plain.tokens, trees.tokens) << trees.closed;
  EXPECT_EQ(plain.log_probs, trees.log_probs);
  return plain.tokens;
}

}  // namespace

void CheckStrongControls(const Subject& subject) {
  TestVerifier verifier(SmallSteps(subject));
  const int tokens = std::min(60, subject.vocabulary - 4);
  const OpenArgs free =
      OpenFor(subject, RandomTokens(kPrompt, subject.vocabulary, std::random_device{}()), tokens);
  {
    OpenArgs args = free;
    args.controls.presence_penalty = 1e6f;
    const std::vector<TokenId> said = PlainAndTrees(verifier, subject, args);
    EXPECT_EQ(std::set<TokenId>(said.begin(), said.end()).size(), said.size()) << "nothing is said twice";
    ASSERT_EQ(said.size(), static_cast<size_t>(tokens));
    args.output_so_far.assign(said.begin(), said.begin() + tokens / 2);
    const std::vector<TokenId> rest(said.begin() + tokens / 2, said.end());
    EXPECT_EQ(PlainAndTrees(verifier, subject, args), rest) << "what was said before counts";
  }
  {
    OpenArgs args = free;
    args.controls.frequency_penalty = 1e4f;
    for (int id = 3; id < 6; ++id) {
      args.controls.logit_bias.push_back({.token = TokenId{id}, .bias = 1e8f});
    }
    std::map<TokenId, int> count;
    for (const TokenId token : PlainAndTrees(verifier, subject, args)) {
      ++count[token];
    }
    EXPECT_EQ(count.size(), 3u) << "nothing but what is biased";
    for (const auto& [token, times] : count) {
      EXPECT_NEAR(times, tokens / 3.0, 1) << "each as often as the others: " << Raw(token);
    }
  }
  {
    OpenArgs args = free;
    args.controls.allowed_token_ids = {TokenId{1}, TokenId{subject.vocabulary - 1}};
    for (const TokenId token : PlainAndTrees(verifier, subject, args)) {
      EXPECT_TRUE(token == TokenId{1} || token == TokenId{subject.vocabulary - 1}) << Raw(token);
    }
  }
  {
    OpenArgs args = free;
    args.stop_ids = {TokenId{7}};
    args.controls.logit_bias.push_back({.token = TokenId{7}, .bias = 1e8f});
    args.controls.min_tokens = 11;
    const std::vector<TokenId> said = PlainAndTrees(verifier, subject, args);
    ASSERT_EQ(said.size(), 12u) << "it stops as soon as it may";
    EXPECT_EQ(std::count(said.begin(), said.end(), TokenId{7}), 1);
  }
}

void CheckControlsActOnTheirOwnSequence(const Subject& subject, int tokens) {
  TestVerifier verifier(SmallSteps(subject));
  const OpenArgs free =
      OpenFor(subject, RandomTokens(kPrompt, subject.vocabulary, std::random_device{}()), tokens);
  const Decoded alone = DecodePlain(*verifier, free);
  ASSERT_EQ(alone.tokens.size(), static_cast<size_t>(tokens)) << alone.closed;

  OpenArgs listed = free;
  listed.controls.top_log_probs = 3;
  const Decoded told = DecodePlain(*verifier, listed);
  EXPECT_EQ(told.tokens, alone.tokens);
  EXPECT_EQ(told.log_probs, alone.log_probs);
  EXPECT_EQ(told.top_log_probs.size(), alone.tokens.size() * 3);

  const std::vector<ControlCase> cases = ControlCases(subject.vocabulary, std::random_device{}());
  std::vector<std::thread> others;
  for (int i = 0; i < 3; ++i) {
    others.emplace_back([&, i] {
      OpenArgs args = free;
      args.key.request_id += std::to_string(i);
      args.controls = (i == 0 ? cases.back() : cases[static_cast<size_t>(3 * i)]).controls;
      args.controls.min_tokens = 0;
      EXPECT_EQ(DecodePlain(*verifier, args).tokens.size(), static_cast<size_t>(tokens));
    });
  }
  const Decoded beside = DecodeTrees(
      *verifier, free, ReplayDrafter(Text(free, alone), subject.vocabulary, kNodes, std::random_device{}()));
  for (std::thread& other : others) {
    other.join();
  }
  EXPECT_EQ(beside.tokens, alone.tokens) << beside.closed;
  EXPECT_EQ(beside.log_probs, alone.log_probs);
}

}  // namespace arborist::verifier
