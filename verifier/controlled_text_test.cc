// Every control against its rule, written out again from the raw logits of each position.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <mutex>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "verifier/control_lists.h"
#include "verifier/testing/control_cases.h"
#include "verifier/testing/drive.h"
#include "verifier/testing/recording_sink.h"
#include "verifier/testing/test_verifier.h"

namespace arborist::verifier {
namespace {

constexpr int kVocabulary = 64;
constexpr int kTokens = 40;

using Rows = std::map<int32_t, std::vector<float>>;  // raw logits after each position

TestVerifierOptions Watching(Rows& rows) {
  TestVerifierOptions options;
  options.fake.vocabulary = kVocabulary;
  options.after = [&rows](const StepBatch& batch, KvPlanes&, const ForwardResult& result) {
    for (size_t i = 0; i < batch.logits_row.size(); ++i) {
      const float* row = result.logits.row(static_cast<int64_t>(i));
      rows[batch.position[batch.logits_row[i]]].assign(row, row + kVocabulary);
    }
  };
  return options;
}

// The greedy choice after `tokens`, of which the first `prompt` are the prompt; ties to the lowest id.
TokenId Choose(const ControlCase& of, const std::vector<float>& raw, const std::vector<TokenId>& tokens,
               size_t prompt) {
  const SamplingControls& controls = of.controls;
  std::set<TokenId> occurred(tokens.begin(), tokens.end()),
      allowed(controls.allowed_token_ids.begin(), controls.allowed_token_ids.end());
  int best = -1;
  float best_value = 0;
  for (int v = 0; v < kVocabulary; ++v) {
    const TokenId token{v};
    if (!allowed.empty() && !allowed.contains(token)) {
      continue;
    }
    if (static_cast<int>(tokens.size() - prompt) < controls.min_tokens &&
        std::find(of.stop_ids.begin(), of.stop_ids.end(), token) != of.stop_ids.end()) {
      continue;
    }
    float value = raw[static_cast<size_t>(v)];
    for (const LogitBias& bias : controls.logit_bias) {
      value += bias.token == token ? bias.bias : 0;
    }
    if (occurred.contains(token)) {
      value = value > 0 ? value / controls.repetition_penalty : value * controls.repetition_penalty;
    }
    const auto count =
        static_cast<float>(std::count(tokens.begin() + static_cast<ptrdiff_t>(prompt), tokens.end(), token));
    if (count > 0) {
      value -= controls.presence_penalty + controls.frequency_penalty * count;
    }
    if (best < 0 || value > best_value) {
      best = v;
      best_value = value;
    }
  }
  return TokenId{best};
}

double LogProb(const std::vector<float>& raw, TokenId token) {
  double sum = 0;
  for (const float logit : raw) {
    sum += std::exp(static_cast<double>(logit));
  }
  return raw[static_cast<size_t>(Raw(token))] - std::log(sum);
}

class ControlledTextTest : public testing::TestWithParam<ControlCase> {
 protected:
  static OpenArgs Args(uint64_t seed) {
    OpenArgs args = MakeOpen("request", RandomTokens(30, kVocabulary, seed), kTokens, 16);
    args.controls = GetParam().controls;
    args.controls.min_tokens = std::min(args.controls.min_tokens, kTokens);
    args.stop_ids = GetParam().stop_ids;
    return args;
  }
};

TEST_P(ControlledTextTest, EveryTokenIsTheOneThatTheRuleChooses) {
  int stopped = 0;
  for (uint64_t seed = 0; seed < 4; ++seed) {
    Rows rows;
    TestVerifier verifier(Watching(rows));
    const OpenArgs args = Args(seed);
    const Decoded decoded = DecodePlain(*verifier, args);
    ASSERT_FALSE(decoded.tokens.empty()) << decoded.closed;
    std::vector<TokenId> tokens = args.prompt;
    for (const TokenId token : decoded.tokens) {
      const std::vector<float>& raw = rows.at(static_cast<int32_t>(tokens.size()) - 1);
      ASSERT_EQ(token, Choose(GetParam(), raw, tokens, args.prompt.size())) << "position " << tokens.size();
      EXPECT_NEAR(decoded.log_probs[tokens.size() - args.prompt.size()], LogProb(raw, token), 1e-5);
      tokens.push_back(token);
    }
    stopped += decoded.finish == FinishReason::kStopId ? 1 : 0;
  }
  EXPECT_EQ(stopped > 0, GetParam().name == "MinTokens" || GetParam().name == "Everything");
}

TEST_P(ControlledTextTest, TopListsAreTheMostProbableTokensOfTheRawLogits) {
  const auto k = static_cast<size_t>(GetParam().controls.top_log_probs);
  Rows rows;
  TestVerifier verifier(Watching(rows));
  const OpenArgs args = Args(9);
  const Decoded decoded = DecodePlain(*verifier, args);
  ASSERT_EQ(decoded.top_log_probs.size(), decoded.tokens.size() * k);
  for (size_t i = 0; i < decoded.tokens.size() && k > 0; ++i) {
    const std::vector<float>& raw = rows.at(static_cast<int32_t>(args.prompt.size() + i) - 1);
    std::vector<std::pair<float, int>> sorted;
    for (int v = 0; v < kVocabulary; ++v) {
      sorted.emplace_back(-raw[static_cast<size_t>(v)], v);
    }
    std::sort(sorted.begin(), sorted.end());
    for (size_t j = 0; j < k; ++j) {
      const TokenLogProb& told = decoded.top_log_probs[i * k + j];
      EXPECT_EQ(Raw(told.token), sorted[j].second);
      EXPECT_NEAR(told.log_prob, LogProb(raw, told.token), 1e-5);
      if (told.token == decoded.tokens[i]) {
        EXPECT_EQ(told.log_prob, decoded.log_probs[i]) << "the same number in both places";
      }
    }
  }
}

TEST_P(ControlledTextTest, ATopListChangesNothingAndTheOthersDo) {
  int changed = 0;
  for (uint64_t seed = 0; seed < 4; ++seed) {
    Rows rows;
    TestVerifier verifier(Watching(rows));
    OpenArgs args = Args(seed);
    const Decoded controlled = DecodePlain(*verifier, args);
    args.controls = {};
    args.key.request_id = "free";
    const Decoded free = DecodePlain(*verifier, args);
    changed += controlled.tokens != free.tokens ? 1 : 0;
    if (GetParam().name.starts_with("Tell")) {
      EXPECT_EQ(controlled.log_probs, free.log_probs);
    }
  }
  EXPECT_EQ(changed == 0, GetParam().name.starts_with("Tell"));
}

TEST(MinTokensTest, TheLargestIntegerMeansNoStopBeforeTheContextIsFull) {
  TestVerifierOptions options;
  options.fake.vocabulary = kVocabulary;
  options.verifier.max_context = 100;
  TestVerifier verifier(options);
  OpenArgs args = MakeOpen("free", RandomTokens(30, kVocabulary, 3), std::numeric_limits<int32_t>::max(), 16);
  const Decoded free = DecodePlain(*verifier, args);
  ASSERT_EQ(free.tokens.size(), 70u) << free.closed;
  args.key.request_id = "stopped";
  args.stop_ids = {free.tokens[5]};
  ASSERT_EQ(DecodePlain(*verifier, args).finish, FinishReason::kStopId);
  args.key.request_id = "held back";
  args.controls.min_tokens = std::numeric_limits<int32_t>::max();
  const Decoded held = DecodePlain(*verifier, args);
  EXPECT_EQ(held.tokens.size(), 70u) << held.closed;
  EXPECT_EQ(held.finish, free.finish);
  EXPECT_EQ(std::count(held.tokens.begin(), held.tokens.end(), free.tokens[5]), 0);
}

TEST(ControlledStepsTest, SequencesWhoseHistoriesFitNoStepTogetherTakeTurns) {
  constexpr int kSequences = kFullHistories + 8;
  TestVerifierOptions options;
  options.fake.vocabulary = kVocabulary;
  options.verifier.max_sequences = kSequences;
  options.verifier.max_queue = kSequences;
  size_t most = 0;
  std::mutex asking;  // the first would else have ended before the last is asked for
  options.verifier.before_step = [&](auto trees, auto, const KvPlanes&, Device&) {
    const std::lock_guard lock(asking);
    most = std::max(most, trees.size());
  };
  TestVerifier verifier(options);
  const auto args = [](int i) {
    OpenArgs one = MakeOpen("request" + std::to_string(i), RandomTokens(20, kVocabulary, i), 20, 8);
    for (int id = 0; id < kVocabulary; ++id) {
      one.controls.logit_bias.push_back({TokenId{id}, static_cast<float>((id * 7 + i) % 5)});
    }
    return one;
  };
  std::vector<RecordingSink> sinks(kSequences);
  std::vector<SequenceHandle> handles;
  std::unique_lock all_asked(asking);
  for (int i = 0; i < kSequences; ++i) {
    const auto handle = verifier->Open(args(i), &sinks[static_cast<size_t>(i)]);
    ASSERT_TRUE(handle.ok()) << handle.status();
    handles.push_back(*handle);
  }
  for (const SequenceHandle handle : handles) {
    ASSERT_TRUE(verifier->SubmitDecode(handle, 1, 20).ok());
  }
  all_asked.unlock();
  std::vector<std::vector<TokenId>> together(kSequences);
  for (size_t i = 0; i < kSequences; ++i) {
    while (const auto committed = sinks[i].TakeCommitted()) {
      together[i].insert(together[i].end(), committed->tokens.begin(), committed->tokens.end());
    }
    EXPECT_TRUE(sinks[i].WaitClosed().ok());
  }
  EXPECT_EQ(most, static_cast<size_t>(kFullHistories));
  for (int i = 0; i < kSequences; ++i) {
    OpenArgs alone = args(i);
    alone.key.request_id = "alone" + std::to_string(i);
    EXPECT_EQ(DecodePlain(*verifier, alone).tokens, together[static_cast<size_t>(i)]) << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Controls, ControlledTextTest,
                         testing::ValuesIn(ControlCases(kVocabulary, std::random_device{}())),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace arborist::verifier
