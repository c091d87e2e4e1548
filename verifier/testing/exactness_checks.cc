#include "verifier/testing/exactness_checks.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <random>
#include <thread>
#include <utility>

#include "common/base/check.h"
#include "kernels/testing/small_shapes.h"
#include "kernels/tree_attention_mla/tree_attention_mla.h"
#include "verifier/batch_builder.h"
#include "verifier/kv_cache.h"
#include "verifier/testing/drive.h"
#include "verifier/testing/first_trees_together.h"

namespace arborist::verifier {
namespace {

using kernels::testing::Small;

constexpr int kMaxRows = 600;

// Small trees and two of them fill a step then, and every size that steps are recorded in counts: each is
// launched at the start of each verifier. Short contexts are one size of page tables.
int MostNodes() { return Small(64, 7); }

TestVerifierOptions OptionsFor(const Subject& subject, int prefill_chunk) {
  TestVerifierOptions options = OptionsOf(subject);
  options.projection = true;
  options.verifier.max_rows = Small(kMaxRows, 33);
  options.verifier.max_logits_rows = Small(130, 17);
  options.verifier.max_tree_nodes = MostNodes();
  options.verifier.max_context = Small(1000, 300);
  options.verifier.max_sequences = Small(8, 2);
  options.verifier.prefill_chunk = std::min(prefill_chunk, Small(512, 33));
  return options;
}

OpenArgs OpenFor(const Subject& subject, std::vector<TokenId> prompt, int max_tokens) {
  OpenArgs args = MakeOpen("request", std::move(prompt), max_tokens, MostNodes());
  args.sampling = subject.sampling;
  args.controls = subject.controls;
  args.controls.min_tokens = std::min(args.controls.min_tokens, max_tokens);
  args.stop_ids = subject.stop_ids;
  args.constraint = subject.constraint;
  return args;
}

std::vector<TokenId> Joined(std::vector<TokenId> first, std::span<const TokenId> second) {
  first.insert(first.end(), second.begin(), second.end());
  return first;
}

// Verifiers whose steps a spy watches, one after the other. On small shapes those with the same chunks are
// one, for starting it takes longer than all it does.
class WatchedVerifiers {
 public:
  explicit WatchedVerifiers(const Subject& subject) : subject_(subject) {}

  // Until the next call; nothing may run on the one before it.
  Verifier& With(int prefill_chunk, KvSpy& spy) {
    if (!kernels::testing::SmallShapes()) {
      verifiers_.clear();
    }
    watch_ = spy.hook();
    TestVerifierOptions options = OptionsFor(subject_, prefill_chunk);
    std::unique_ptr<TestVerifier>& verifier = verifiers_[options.verifier.prefill_chunk];
    if (verifier == nullptr) {
      options.verifier.before_step = [this](auto trees, auto chunks, const KvPlanes& planes, Device& device) {
        watch_(trees, chunks, planes, device);
      };
      verifier = std::make_unique<TestVerifier>(std::move(options));
    }
    return **verifier;
  }

 private:
  const Subject& subject_;
  decltype(VerifierOptions::before_step) watch_;
  std::map<int, std::unique_ptr<TestVerifier>> verifiers_;  // by prefill_chunk
};

void ExpectSameBytes(const KvSpy& expected, const KvSpy& actual, int positions, const std::string& how) {
  ASSERT_GE(expected.positions(), positions) << how;
  ASSERT_GE(actual.positions(), positions) << how;
  for (int position = 0; position < positions; ++position) {
    ASSERT_EQ(expected.row(position), actual.row(position)) << how << ", position " << position;
  }
}

void ExpectSameText(const Decoded& expected, const Decoded& actual, const std::string& how) {
  EXPECT_EQ(expected.tokens, actual.tokens) << how;
  ASSERT_EQ(expected.log_probs.size(), actual.log_probs.size()) << how;
  EXPECT_EQ(std::memcmp(expected.log_probs.data(), actual.log_probs.data(),
                        expected.log_probs.size() * sizeof(float)),
            0)
      << how;
  EXPECT_EQ(expected.top_log_probs, actual.top_log_probs) << how;
  EXPECT_EQ(expected.finish, actual.finish) << how;
  EXPECT_TRUE(actual.closed.ok()) << how << ": " << actual.closed;
}

}  // namespace

TestVerifierOptions OptionsOf(const Subject& subject) {
  TestVerifierOptions options;
  options.make_model = subject.make_model;
  options.fake.vocabulary = subject.vocabulary;
  options.open_device = subject.open_device;
  options.verifier.kv_type = subject.kv_type;
  return options;
}

void KvSpy::Copy(std::span<const StepTree> trees, std::span<const StepChunk> chunks, const KvPlanes& planes,
                 Device& device) {
  const int committed = trees.empty() ? chunks[0].first_position : trees[0].root_position;
  const auto table = trees.empty() ? chunks[0].page_table : trees[0].page_table;
  std::vector<std::byte> all(planes.total_bytes());
  Check(device.Copy(all.data(), planes.plane_data()[0], all.size()).ok() && device.Synchronize().ok(),
        "the cache can be read");
  rows_.assign(static_cast<size_t>(committed), {});
  auto plane = all.begin();
  for (const int64_t bytes : planes.plane_row_bytes()) {
    for (int position = 0; position < committed; ++position) {
      const auto row = plane + SlotOf(table, position) * bytes;
      rows_[position].insert(rows_[position].end(), row, row + bytes);
    }
    plane += planes.slots() * bytes;
  }
}

void CheckKvBytes(const Subject& subject) {
  const std::vector<TokenId> prompt = RandomTokens(70, subject.vocabulary, std::random_device{}());
  const int output = Small(130, 12), resumed = Small(57, 7);
  const int compared = 70 + output - 2;  // a plain run's last root has no K/V yet

  KvSpy plain_spy;
  WatchedVerifiers verifiers(subject);
  const Decoded plain = DecodePlain(verifiers.With(512, plain_spy), OpenFor(subject, prompt, output));
  ASSERT_EQ(plain.tokens.size(), static_cast<size_t>(output)) << plain.closed;
  const std::vector<TokenId> text = Joined(prompt, plain.tokens);

  for (const int chunk : Small(std::vector{1, 7, 64, 512}, std::vector{23})) {
    KvSpy spy;
    DecodePlain(verifiers.With(chunk, spy), OpenFor(subject, text, 1));
    ExpectSameBytes(plain_spy, spy, compared, "prefill in chunks of " + std::to_string(chunk));
  }
  {
    KvSpy spy;
    const Decoded trees =
        DecodeTrees(verifiers.With(48, spy), OpenFor(subject, prompt, output),
                    ReplayDrafter(Joined(text, prompt), subject.vocabulary, Small(16, 7), 5));
    ExpectSameText(plain, trees, "trees");
    EXPECT_GT(trees.compactions, Small(5, -1));
    ExpectSameBytes(plain_spy, spy, std::min(compared, spy.positions()), "tree rounds with compaction");
    EXPECT_GT(spy.positions(), compared - 64);
  }
  {
    KvSpy spy;
    OpenArgs args = OpenFor(subject, prompt, output);
    args.output_so_far.assign(plain.tokens.begin(), plain.tokens.begin() + resumed);
    DecodePlain(verifiers.With(48, spy), std::move(args));
    ExpectSameBytes(plain_spy, spy, compared, "resumed from prompt + output");
  }
  {
    KvSpy spy;
    Verifier& verifier = verifiers.With(48, spy);
    RecordingSink old;
    std::vector<TokenId> other = text;
    TokenId& changed = other[Small(100, 75)];
    changed = TokenId{(Raw(changed) + 1) % subject.vocabulary};
    ASSERT_TRUE(verifier.Open(OpenFor(subject, other, Small(30, 5)), &old).ok());
    old.WaitReady();
    OpenArgs args = OpenFor(subject, prompt, output);
    args.epoch = 2;
    args.output_so_far.assign(plain.tokens.begin(), plain.tokens.begin() + resumed);
    DecodePlain(verifier, std::move(args));
    EXPECT_EQ(old.WaitClosed().code(), absl::StatusCode::kAborted);
    ExpectSameBytes(plain_spy, spy, compared, "takeover");
  }
}

void CheckTextIsTheSame(const Subject& subject, int tokens) {
  const std::vector<TokenId> prompt = RandomTokens(61, subject.vocabulary, std::random_device{}());
  TestVerifier verifier(OptionsFor(subject, 48));
  const Decoded plain = DecodePlain(*verifier, OpenFor(subject, prompt, tokens));
  ASSERT_TRUE(plain.tokens.size() == static_cast<size_t>(tokens) || plain.finish == FinishReason::kStopId ||
              plain.finish == FinishReason::kConstraint)
      << plain.closed;
  ASSERT_EQ(plain.top_log_probs.size(),
            plain.tokens.size() *
                static_cast<size_t>(std::min(subject.controls.top_log_probs, subject.vocabulary)));
  const std::vector<TokenId> text = Joined(prompt, plain.tokens);
  const bool is_long = static_cast<int>(plain.tokens.size()) >= std::min(tokens, 30);

  int compactions = 0;
  for (const int nodes : Small(std::vector{1, 3, 7, 16, 31, 64}, std::vector{7})) {
    const Decoded trees = DecodeTrees(*verifier, OpenFor(subject, prompt, tokens),
                                      ReplayDrafter(text, subject.vocabulary, nodes, std::random_device{}()));
    ExpectSameText(plain, trees, "trees of " + std::to_string(nodes));
    EXPECT_GT(trees.accepted_drafts, is_long ? 0 : -1);
    EXPECT_GT(trees.verified_nodes, 0);
    compactions += trees.compactions;
  }
  EXPECT_GT(compactions, is_long ? Small(0, -1) : -1);

  TestVerifierOptions cutting = OptionsFor(subject, 48);
  cutting.verifier.cut_trees_seed = std::random_device{}();
  const Decoded cut = DecodeTrees(*TestVerifier(std::move(cutting)), OpenFor(subject, prompt, tokens),
                                  ReplayDrafter(text, subject.vocabulary, Small(31, 7), 3));
  ExpectSameText(plain, cut, "cut trees");
  EXPECT_GT(cut.cut_nodes, is_long ? 0 : -1);

  std::vector<std::thread> owners;
  for (int i = 0; i < Small(8, 2); ++i) {
    owners.emplace_back([&, i] {
      OpenArgs args = OpenFor(subject, prompt, tokens);
      args.key.request_id += std::to_string(i);
      const int resumed = i * static_cast<int>(plain.tokens.size()) / 16;
      args.output_so_far.assign(plain.tokens.begin(), plain.tokens.begin() + resumed);
      const Decoded mixed =
          i % 3 == 2 ? DecodePlain(*verifier, std::move(args))
                     : DecodeTrees(*verifier, std::move(args),
                                   ReplayDrafter(text, subject.vocabulary, 5 + Small(6, 2) * i, i));
      Decoded rest = plain;
      rest.tokens.erase(rest.tokens.begin(), rest.tokens.begin() + resumed);
      rest.log_probs.erase(rest.log_probs.begin(), rest.log_probs.begin() + resumed);
      const auto top = static_cast<ptrdiff_t>(plain.top_log_probs.size() / plain.tokens.size());
      rest.top_log_probs.erase(rest.top_log_probs.begin(), rest.top_log_probs.begin() + resumed * top);
      ExpectSameText(rest, mixed, "mixed and resumed, " + std::to_string(i));
    });
  }
  for (std::thread& owner : owners) {
    owner.join();
  }
  EXPECT_EQ(verifier->free_pages(), verifier->total_pages());
}

void CheckSamples(const Subject& subject, int tokens) {
  const int samples = Small(4, 2), prompt_tokens = Small(200, 70);
  const std::vector<TokenId> prompt = RandomTokens(prompt_tokens, subject.vocabulary, std::random_device{}());
  TestVerifierOptions options = OptionsFor(subject, 48);
  size_t prompt_rows = 0;
  options.verifier.before_step = [&](std::span<const StepTree>, std::span<const StepChunk> chunks,
                                     const KvPlanes&, Device&) {
    for (const StepChunk& chunk : chunks) {
      prompt_rows += chunk.tokens.size();
    }
  };
  TestVerifier verifier(std::move(options));
  const auto open_for = [&](int index, const std::string& request) {
    OpenArgs args = OpenFor(subject, prompt, tokens);
    args.key = {.request_id = request, .sample_index = static_cast<uint32_t>(index)};
    args.sampling.sample_index = static_cast<uint32_t>(index);
    return args;
  };
  std::vector<Decoded> alone(samples), together(samples);
  for (int i = 0; i < samples; ++i) {
    alone[i] = DecodePlain(*verifier, open_for(i, "alone"));
    ASSERT_EQ(alone[i].tokens.size(), static_cast<size_t>(tokens)) << alone[i].closed;
  }
  // The last one is there all the time, so that the others find its pages.
  prompt_rows = 0;
  RecordingSink last;
  const auto handle = verifier->Open(open_for(samples - 1, "together"), &last);
  ASSERT_TRUE(handle.ok()) << handle.status();
  last.WaitReady();
  const size_t of_last = std::exchange(prompt_rows, 0);
  std::vector<std::thread> owners;
  for (int i = 0; i + 1 < samples; ++i) {
    owners.emplace_back([&, i] {
      const std::vector<TokenId> text = Joined(prompt, alone[i].tokens);
      together[i] =
          DecodeTrees(*verifier, open_for(i, "together"),
                      ReplayDrafter(text, subject.vocabulary, Small(16, 7), std::random_device{}()));
    });
  }
  for (std::thread& owner : owners) {
    owner.join();
  }
  EXPECT_TRUE(verifier->SubmitDecode(*handle, 1, tokens).ok());
  while (const auto committed = last.TakeCommitted()) {
    Append(*committed, prompt.size(), together.back());
  }
  together.back().closed = last.WaitClosed();
  EXPECT_EQ(verifier->free_pages(), verifier->total_pages());
  verifier.Destroy();
  for (int i = 0; i < samples; ++i) {
    ExpectSameText(alone[i], together[i], "sample " + std::to_string(i));
  }
  EXPECT_EQ(of_last, prompt.size() - 1);
  EXPECT_EQ(prompt_rows,
            static_cast<size_t>(samples - 1) * (of_last % static_cast<size_t>(kernels::kPageRows)))
      << "whole pages are shared";
}

void CheckLargeSteps(const Subject& subject, int tokens) {
  const int sequences = Small(32, 4), nodes = Small(64, 17);
  TestVerifierOptions options = OptionsFor(subject, 512);
  options.verifier.pages = 8 * sequences;
  options.verifier.max_tree_nodes = nodes;
  options.verifier.max_sequences = sequences + 1;
  options.verifier.max_queue = sequences + 1;
  options.verifier.max_rows = sequences * (nodes + 1);
  options.verifier.max_logits_rows = options.verifier.max_rows;
  options.verifier.prefill_chunk = options.verifier.max_rows;
  options.verifier.run_self_test = true;
  FirstTreesTogether together(sequences);
  options.verifier.before_step = together.hook();
  TestVerifier verifier(std::move(options));
  std::vector<OpenArgs> args;
  std::vector<Decoded> plain(sequences), trees(sequences);
  for (int i = 0; i < sequences; ++i) {
    const int prompt = 61 + 37 * i % 200;
    args.push_back(
        OpenFor(subject, RandomTokens(prompt, subject.vocabulary, std::random_device{}()), tokens));
    args[i].key.request_id += std::to_string(i);
    args[i].tree_nodes = nodes;
    plain[i] = DecodePlain(*verifier, args[i]);
    ASSERT_EQ(plain[i].tokens.size(), static_cast<size_t>(tokens)) << plain[i].closed;
  }
  std::vector<std::thread> owners;
  for (int i = 0; i < sequences; ++i) {
    owners.emplace_back([&, i] {
      const ReplayDrafter replay(Joined(args[i].prompt, plain[i].tokens), subject.vocabulary, nodes, i);
      trees[i] = DecodeTrees(*verifier, args[i], together.Drafting(replay));
    });
  }
  const bool all_asked = together.Await();
  EXPECT_TRUE(all_asked) << "an owner was not asked for a tree";
  RecordingSink other;
  const auto handle = verifier->Open(OpenFor(subject, RandomTokens(9, subject.vocabulary, 1), 1), &other);
  EXPECT_TRUE(handle.ok()) << handle.status();
  if (!all_asked || !handle.ok()) {
    together.Release();
  }
  for (std::thread& owner : owners) {
    owner.join();
  }
  verifier.Destroy();
  for (int i = 0; i < sequences; ++i) {
    ExpectSameText(plain[i], trees[i], "sequence " + std::to_string(i));
  }
  // A busy machine may leave some of them out.
  const auto expected = static_cast<size_t>(Small(3 * sequences / 4, 1) * (nodes + 1));
  EXPECT_GE(together.most_rows_of_trees(), expected);
  EXPECT_GE(together.most_rows_with_prompts(), expected);
}

}  // namespace arborist::verifier
