// Faults of controlled steps that the exactness checks must find, planted on purpose.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <vector>

#include "verifier/testing/drive.h"
#include "verifier/testing/test_verifier.h"

namespace arborist::verifier {
namespace {

using kernels::CpuKernels;
using kernels::LogitControlsArgs;
using kernels::LogitEntry;
using kernels::RowControls;

constexpr int kVocabulary = 64;
constexpr int kTokens = 64;

OpenArgs Args(const SamplingControls& controls) {
  OpenArgs args = MakeOpen("request", RandomTokens(50, kVocabulary, 17), kTokens, 16);
  args.sampling = {.temperature = 1, .seed = 5};
  args.controls = controls;
  return args;
}

SamplingControls Penalties() {
  SamplingControls controls;
  controls.repetition_penalty = 1.5f;
  controls.presence_penalty = 1;
  controls.frequency_penalty = 0.5f;
  return controls;
}

TestVerifierOptions With(const kernels::KernelSet& kernels) {
  TestVerifierOptions options;
  options.fake.vocabulary = kVocabulary;
  options.kernels = &kernels;
  return options;
}

bool SameFrom(const Decoded& plain, size_t first, const Decoded& other) {
  const size_t k = plain.top_log_probs.size() / plain.tokens.size();
  const auto skip = static_cast<ptrdiff_t>(first);
  return other.closed.ok() &&
         std::equal(plain.tokens.begin() + skip, plain.tokens.end(), other.tokens.begin(),
                    other.tokens.end()) &&
         std::equal(plain.log_probs.begin() + skip, plain.log_probs.end(), other.log_probs.begin(),
                    other.log_probs.end()) &&
         std::equal(plain.top_log_probs.begin() + skip * static_cast<ptrdiff_t>(k), plain.top_log_probs.end(),
                    other.top_log_probs.begin(), other.top_log_probs.end());
}

// Whether trees with the fault still give plain decoding's text and lists.
bool UnnoticedInTrees(const kernels::KernelSet& faulty, const OpenArgs& args) {
  const Decoded plain = DecodePlain(*TestVerifier(With(CpuKernels())), args);
  EXPECT_FALSE(plain.tokens.empty()) << plain.closed;
  std::vector<TokenId> text = args.prompt;
  text.insert(text.end(), plain.tokens.begin(), plain.tokens.end());
  return SameFrom(plain, 0,
                  DecodeTrees(*TestVerifier(With(faulty)), args, ReplayDrafter(text, kVocabulary, 16, 23)));
}

// The same of a sequence that resumes in the middle.
bool UnnoticedWhenResumed(const kernels::KernelSet& faulty, OpenArgs args) {
  const Decoded plain = DecodePlain(*TestVerifier(With(CpuKernels())), args);
  args.output_so_far.assign(plain.tokens.begin(), plain.tokens.begin() + kTokens / 2);
  return SameFrom(plain, kTokens / 2, DecodePlain(*TestVerifier(With(faulty)), args));
}

absl::Status ForgetAncestors(const LogitControlsArgs& args, StreamView stream) {
  std::vector<RowControls> rows(args.row.data, args.row.data + args.row.size);
  for (RowControls& row : rows) {
    row.entries = {};
  }
  LogitControlsArgs faulty = args;
  faulty.row = {rows.data(), args.row.size};
  return CpuKernels().logit_controls(faulty, stream);
}

// A node has what its neighbour in the list has: a sibling's path, or its parent's mask and position.
absl::Status TakeTheRowBefore(const LogitControlsArgs& args, StreamView stream) {
  std::vector<RowControls> rows(args.row.data, args.row.data + args.row.size);
  for (size_t row = rows.size() - 1; row > 0; --row) {
    rows[row] = rows[row - 1];
  }
  LogitControlsArgs faulty = args;
  faulty.row = {rows.data(), args.row.size};
  return CpuKernels().logit_controls(faulty, stream);
}

// Counts with what a node's path adds alone, as if a row's entry were added to its sequence's.
absl::Status ForgetTheTotal(const LogitControlsArgs& args, StreamView stream) {
  std::vector<LogitEntry> entries(args.entry.data, args.entry.data + args.entry.size);
  for (int64_t row = 0; row < args.row.size; ++row) {
    for (int32_t i = 0; i < args.row[row].entries.count; ++i) {
      LogitEntry& entry = entries[static_cast<size_t>(args.row[row].entries.first + i)];
      entry.output_count = std::min(entry.output_count, 1);
      entry.bias = 0;
    }
  }
  LogitControlsArgs faulty = args;
  faulty.entry = {entries.data(), args.entry.size};
  return CpuKernels().logit_controls(faulty, stream);
}

std::map<int32_t, int32_t>& AtFirst() {
  static std::map<int32_t, int32_t> counts;
  return counts;
}

// Does not count what a sequence brought with it, as one that forgets output_so_far.
absl::Status ForgetWhatWasThere(const LogitControlsArgs& args, StreamView stream) {
  std::vector<LogitEntry> entries(args.entry.data, args.entry.data + args.entry.size);
  if (AtFirst().empty()) {
    for (const LogitEntry& entry : entries) {
      AtFirst()[Raw(entry.token)] = entry.output_count;
    }
  }
  for (LogitEntry& entry : entries) {
    entry.output_count -= AtFirst()[Raw(entry.token)];
  }
  LogitControlsArgs faulty = args;
  faulty.entry = {entries.data(), args.entry.size};
  return CpuKernels().logit_controls(faulty, stream);
}

absl::Status ListTheRowBefore(const kernels::TopKLogProbArgs& args, StreamView stream) {
  const absl::Status status = CpuKernels().top_k_log_prob(args, stream);
  for (int64_t row = args.token.rows - 1; row > 0; --row) {
    std::copy_n(args.token.row(row - 1), args.token.columns, args.token.row(row));
  }
  return status;
}

TEST(ControlFaultsTest, WithoutAFaultAllIsEqual) {
  SamplingControls controls = Penalties();
  controls.top_log_probs = 4;
  EXPECT_TRUE(UnnoticedInTrees(CpuKernels(), Args(controls)));
  EXPECT_TRUE(UnnoticedWhenResumed(CpuKernels(), Args(controls)));
}

TEST(ControlFaultsTest, AncestorsThatArePenalizedNowhereAreNoticed) {
  kernels::KernelSet faulty = CpuKernels();
  faulty.logit_controls = ForgetAncestors;
  EXPECT_FALSE(UnnoticedInTrees(faulty, Args(Penalties())));
}

TEST(ControlFaultsTest, ThePathOfAnotherNodeIsNoticed) {
  kernels::KernelSet faulty = CpuKernels();
  faulty.logit_controls = TakeTheRowBefore;
  EXPECT_FALSE(UnnoticedInTrees(faulty, Args(Penalties())));
}

TEST(ControlFaultsTest, APathThatForgetsHistoryAndBiasIsNoticed) {
  kernels::KernelSet faulty = CpuKernels();
  faulty.logit_controls = ForgetTheTotal;
  SamplingControls controls;
  controls.frequency_penalty = 0.5f;
  for (int id = 0; id < 4; ++id) {
    controls.logit_bias.push_back({.token = TokenId{id}, .bias = 9});  // so that tokens come again
  }
  EXPECT_FALSE(UnnoticedInTrees(faulty, Args(controls)));
}

TEST(ControlFaultsTest, AStopIdHeldBackByAnotherNodesPositionIsNoticed) {
  kernels::KernelSet faulty = CpuKernels();
  faulty.logit_controls = TakeTheRowBefore;
  OpenArgs args = Args({});
  args.stop_ids = {TokenId{7}};
  args.controls.logit_bias = {{.token = TokenId{7}, .bias = 100}};  // it stops as soon as it may
  int noticed = 0;                                                  // where that is inside of a tree
  for (args.controls.min_tokens = 10; args.controls.min_tokens < 26; ++args.controls.min_tokens) {
    EXPECT_TRUE(UnnoticedInTrees(CpuKernels(), args));
    noticed += UnnoticedInTrees(faulty, args) ? 0 : 1;
  }
  EXPECT_GT(noticed, 0);
}

TEST(ControlFaultsTest, OutputSoFarThatDoesNotCountIsNoticed) {
  kernels::KernelSet faulty = CpuKernels();
  faulty.logit_controls = ForgetWhatWasThere;
  AtFirst().clear();
  EXPECT_FALSE(UnnoticedWhenResumed(faulty, Args(Penalties())));
}

TEST(ControlFaultsTest, ATopListOfAnotherNodeIsNoticed) {
  kernels::KernelSet faulty = CpuKernels();
  faulty.top_k_log_prob = ListTheRowBefore;
  SamplingControls controls;
  controls.top_log_probs = 4;
  EXPECT_FALSE(UnnoticedInTrees(faulty, Args(controls)));
}

}  // namespace
}  // namespace arborist::verifier
