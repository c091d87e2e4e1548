// Samples of one request: they share whole pages of their common text, and nobody can tell from the outside.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "kernels/tree_attention_mla/tree_attention_mla.h"
#include "verifier/testing/lifecycle_support.h"
#include "verifier/testing/owner_storm.h"

namespace arborist::verifier {
namespace {

constexpr int kPromptTokens = 200;  // three whole pages and 7 rows up to the root
constexpr int kMaxTokens = 60;
constexpr int kTreeNodes = 16;  // 5 pages in all

OpenArgs Sample(uint32_t index, const std::string& request = "r", int prompt_tokens = kPromptTokens) {
  OpenArgs args = Request(request, prompt_tokens, kMaxTokens, kTreeNodes);
  args.key.sample_index = index;
  args.sampling = {.temperature = 1, .seed = 9, .sample_index = index};
  args.projection_hash = kTestProjectionHash;
  return args;
}

TestVerifierOptions Options() {
  TestVerifierOptions options;
  options.projection = true;
  options.fake.taps = 2;
  return options;
}

// What a verifier says that has only this sequence.
Decoded Alone(const OpenArgs& args) { return DecodePlain(*TestVerifier(Options()), args); }

ReplayDrafter DrafterOf(const OpenArgs& args, const Decoded& alone) {
  std::vector<TokenId> text = args.prompt;
  text.insert(text.end(), alone.tokens.begin(), alone.tokens.end());
  return ReplayDrafter(text, kVocabulary, kTreeNodes, 23 + args.key.sample_index);
}

void ExpectSame(const Decoded& is, const Decoded& alone) {
  EXPECT_TRUE(is.closed.ok()) << is.closed;
  EXPECT_EQ(is.tokens, alone.tokens);
  EXPECT_EQ(is.log_probs, alone.log_probs);
  EXPECT_EQ(is.finish, alone.finish);
}

// Counts prompt rows; its first step waits until so many samples of "r" are open.
class Watch {
 public:
  explicit Watch(uint32_t samples) : samples_(samples) {}

  TestVerifier& Start(TestVerifierOptions options) {
    options.before = [this](StepBatch& batch, KvPlanes&) {
      for (uint32_t i = 0; i < samples_.load(); ++i) {
        while (!started_.load() || !(*verifier_)->IsOpen({.request_id = "r", .sample_index = i})) {
          std::this_thread::yield();
        }
      }
      samples_ = 0;
      prompt_rows += batch.rows - static_cast<int>(batch.logits_row.size());
      return absl::OkStatus();
    };
    verifier_ = std::make_unique<TestVerifier>(std::move(options));
    started_ = true;
    return *verifier_;
  }

  std::atomic<int> prompt_rows = 0;

 private:
  std::atomic<uint32_t> samples_;
  std::atomic<bool> started_ = false;
  std::unique_ptr<TestVerifier> verifier_;
};

TEST(SamplesTest, FourSamplesAreFourSingleRequestsByteForByteAndShareThePagesOfTheirPrompt) {
  constexpr int kSamples = 4;
  std::vector<Decoded> alone;
  for (uint32_t i = 0; i < kSamples; ++i) {
    alone.push_back(Alone(Sample(i)));
    ASSERT_EQ(alone[i].tokens.size(), static_cast<size_t>(kMaxTokens)) << alone[i].closed;
  }
  EXPECT_NE(alone[0].tokens, alone[1].tokens);
  TestVerifierOptions options = Options();
  options.verifier.pages = 3 + kSamples * 2;  // they fit at once only if the prompt's are there once
  Watch watch(kSamples);
  TestVerifier& verifier = watch.Start(std::move(options));
  std::vector<Decoded> together(kSamples);
  std::vector<std::thread> owners;
  for (uint32_t i = 0; i < kSamples; ++i) {
    owners.emplace_back(
        [&, i] { together[i] = DecodeTrees(*verifier, Sample(i), DrafterOf(Sample(i), alone[i])); });
  }
  for (std::thread& owner : owners) {
    owner.join();
  }
  int compactions = 0;
  for (uint32_t i = 0; i < kSamples; ++i) {
    ExpectSame(together[i], alone[i]);
    compactions += together[i].compactions;
    for (const auto& [position, features] : alone[i].features) {
      EXPECT_EQ(together[i].features[position], features) << position;
    }
  }
  EXPECT_GT(compactions, 0);
  EXPECT_EQ(watch.prompt_rows, kPromptTokens - 1 + (kSamples - 1) * 7);
  ExpectAllPagesFree(verifier);
}

TEST(SamplesTest, AllFeaturesOfAttachingAreThereThoughOthersComputedThem) {
  TestVerifier verifier(Options());
  RecordingSink first;
  RecordingSink second;
  const auto one = verifier->Open(Sample(0), &first);
  const auto two = verifier->Open(Sample(1), &second);
  ASSERT_TRUE(one.ok() && two.ok());
  const auto of_first = first.WaitFeatures(kPromptTokens - 1);
  const auto of_second = second.WaitFeatures(kPromptTokens - 1);
  ASSERT_EQ(of_first.size(), of_second.size());
  for (size_t i = 0; i < of_first.size(); ++i) {
    EXPECT_EQ(of_first[i].first_position, of_second[i].first_position);
    EXPECT_EQ(of_first[i].features, of_second[i].features);
  }
  verifier.Destroy();  // while the sinks live
}

TEST(SamplesTest, WhenTheFirstDiesInItsPrefillTheOthersGoOn) {
  StepGate gate;
  TestVerifierOptions options = Options();
  options.before = gate.hook();
  const Decoded alone_1 = Alone(Sample(1));
  const Decoded alone_2 = Alone(Sample(2));
  TestVerifier verifier(std::move(options));
  RecordingSink first;
  const auto handle = verifier->Open(Sample(0), &first);
  gate.WaitArrived();
  Decoded one;
  Decoded two;
  std::thread owner_1([&] { one = DecodePlain(*verifier, Sample(1)); });
  std::thread owner_2([&] { two = DecodePlain(*verifier, Sample(2)); });
  while (!verifier->IsOpen({"r", 1}) || !verifier->IsOpen({"r", 2})) {
    std::this_thread::yield();
  }
  verifier->Cancel(*handle);
  gate.Open();
  EXPECT_EQ(first.WaitClosed().code(), absl::StatusCode::kCancelled);
  owner_1.join();
  owner_2.join();
  ExpectSame(one, alone_1);
  ExpectSame(two, alone_2);
  ExpectAllPagesFree(verifier);
}

TEST(SamplesTest, SharedPagesStayUntilTheLastSampleGoes) {
  const Decoded alone = Alone(Sample(1));
  TestVerifier verifier(Options());
  RecordingSink first;
  RecordingSink second;
  const auto one = verifier->Open(Sample(0), &first);
  first.WaitReady();
  EXPECT_EQ(verifier->total_pages() - verifier->free_pages(), 5);
  const auto two = verifier->Open(Sample(1), &second);
  second.WaitReady();
  EXPECT_EQ(verifier->total_pages() - verifier->free_pages(), 7);
  verifier->Cancel(*one);
  (void)first.WaitClosed();
  // The pages that only the first had go to somebody who writes them.
  EXPECT_EQ(DecodePlain(*verifier, Request("other", 300, 100)).tokens.size(), 100u);
  EXPECT_EQ(verifier->total_pages() - verifier->free_pages(), 5);
  ASSERT_TRUE(verifier->SubmitDecode(*two, 1, kMaxTokens).ok());
  Decoded decoded;
  while (const auto committed = second.TakeCommitted()) {
    Append(*committed, kPromptTokens, decoded);
  }
  decoded.closed = second.WaitClosed();
  ExpectSame(decoded, alone);
  ExpectAllPagesFree(verifier);
}

TEST(SamplesTest, OnlyWholePagesOfTheCommonTextOfOneRequestAreShared) {
  Watch watch(0);
  TestVerifier& verifier = watch.Start(Options());
  RecordingSink holder;
  ASSERT_TRUE(verifier->Open(Sample(0), &holder).ok());
  holder.WaitReady();
  const auto rows_read = [&](const OpenArgs& args) {
    watch.prompt_rows = 0;
    ExpectSame(DecodePlain(*verifier, args), Alone(args));
    return watch.prompt_rows.load();
  };
  EXPECT_EQ(rows_read(Sample(1, "other request")), kPromptTokens - 1);
  OpenArgs differs = Sample(2);
  differs.prompt[130] = TokenId{(Raw(differs.prompt[130]) + 1) % kVocabulary};
  EXPECT_EQ(rows_read(differs), kPromptTokens - 1 - 128);
  EXPECT_EQ(rows_read(Sample(3, "r", 193)), 0) << "the root is the first row after the shared pages";
  EXPECT_EQ(rows_read(Sample(4, "r", 192)), 191 - 128) << "the root lies in the third page";
  EXPECT_EQ(rows_read(Sample(5, "r", 64)), 63);
  verifier.Destroy();
}

TEST(SamplesTest, ASampleTakenOverKeepsTheSharedPagesAndItsText) {
  const Decoded alone = Alone(Sample(1));
  Watch watch(0);
  TestVerifier& verifier = watch.Start(Options());
  RecordingSink first;
  RecordingSink second;
  ASSERT_TRUE(verifier->Open(Sample(0), &first).ok());
  first.WaitReady();
  const auto handle = verifier->Open(Sample(1), &second);
  ASSERT_TRUE(verifier->SubmitDecode(*handle, 1, 20).ok());
  for (int i = 0; i < 20; ++i) {
    ASSERT_TRUE(second.TakeCommitted().has_value());
  }
  watch.prompt_rows = 0;
  OpenArgs args = Sample(1);
  args.epoch = 2;
  args.output_so_far.assign(alone.tokens.begin(), alone.tokens.begin() + 20);
  const Decoded rest = DecodeTrees(*verifier, args, DrafterOf(Sample(1), alone));
  EXPECT_EQ(second.WaitClosed().code(), absl::StatusCode::kAborted);
  EXPECT_EQ(rest.tokens, std::vector<TokenId>(alone.tokens.begin() + 20, alone.tokens.end()));
  EXPECT_EQ(watch.prompt_rows, 0);
  verifier.Destroy();
}

TEST(SamplesTest, AHeirWhoseTextPartsInAPageThatAnotherReadsComputesThatPageAnew) {
  // The first is past its third page when another resumes the same text and shares that page; then the first
  // begins anew with a text that differs inside.
  OpenArgs args = Sample(0, "r", 150);
  const Decoded alone = Alone(args);
  TestVerifier verifier(Options());
  RecordingSink first;
  RecordingSink second;
  const auto one = verifier->Open(args, &first);
  ASSERT_TRUE(verifier->SubmitDecode(*one, 1, 50).ok());
  for (int i = 0; i < 50; ++i) {
    ASSERT_TRUE(first.TakeCommitted().has_value());
  }
  OpenArgs resumed = args;
  resumed.key.sample_index = 1;  // of the key alone: the noise stays, and so does the text
  resumed.output_so_far.assign(alone.tokens.begin(), alone.tokens.begin() + 45);
  const auto two = verifier->Open(resumed, &second);
  second.WaitReady();
  EXPECT_EQ(verifier->total_pages() - verifier->free_pages(), 4 + 1) << "three pages are shared";
  args.epoch = 2;
  args.prompt[140] = TokenId{(Raw(args.prompt[140]) + 1) % kVocabulary};
  const Decoded alone_differs = Alone(args);
  ExpectSame(DecodeTrees(*verifier, args, DrafterOf(args, alone_differs)), alone_differs);
  ASSERT_TRUE(verifier->SubmitDecode(*two, 1, kMaxTokens).ok());
  Decoded rest;
  while (const auto committed = second.TakeCommitted()) {
    Append(*committed, 150 + 45, rest);
  }
  EXPECT_EQ(rest.tokens, std::vector<TokenId>(alone.tokens.begin() + 45, alone.tokens.end()));
  (void)first.WaitClosed();
  (void)second.WaitClosed();
  ExpectAllPagesFree(verifier);
}

TEST(SamplesTest, AWriteToASharedPageWouldBeNoticed) {
  // Planted: the second sample's first tree writes its root's row over row 100 of the prompt.
  const auto rest_of_first = [](bool fault) {
    std::atomic<bool> armed = false;
    TestVerifierOptions options = Options();
    options.before = [&](StepBatch& batch, KvPlanes&) {
      if (armed.exchange(false)) {
        batch.write_slot[0] = batch.page_table[1] * static_cast<int32_t>(kernels::kPageRows) + 36;
      }
      return absl::OkStatus();
    };
    TestVerifier verifier(std::move(options));
    RecordingSink first;
    RecordingSink second;
    const auto one = verifier->Open(Sample(0), &first);
    first.WaitReady();
    const auto two = verifier->Open(Sample(1), &second);
    second.WaitReady();
    armed = fault;
    EXPECT_TRUE(verifier->SubmitDecode(*two, 1, kMaxTokens).ok());
    (void)second.WaitClosed();
    EXPECT_TRUE(verifier->SubmitDecode(*one, 1, kMaxTokens).ok());
    std::vector<TokenId> tokens;
    while (const auto committed = first.TakeCommitted()) {
      tokens.insert(tokens.end(), committed->tokens.begin(), committed->tokens.end());
    }
    (void)first.WaitClosed();
    return tokens;
  };
  const std::vector<TokenId> text = Alone(Sample(0)).tokens;
  EXPECT_EQ(rest_of_first(false), text);
  EXPECT_NE(rest_of_first(true), text);
}

TEST(SamplesTest, SamplesThatComeAndGoInEveryWayKeepTheirTextAndLeaveNoPageBehind) {
  constexpr int kSamples = 5;
  std::vector<Decoded> alone;
  for (uint32_t i = 0; i < kSamples; ++i) {
    alone.push_back(Alone(Sample(i)));
  }
  TestVerifierOptions options = Options();
  options.verifier.pages = 14;
  options.verifier.max_queue = 64;
  TestVerifier verifier(std::move(options));
  OwnerStorm(verifier, 20, [&](std::mt19937& random, int64_t epoch) {
    const uint32_t index = random() % kSamples;
    OpenArgs args = Sample(index);
    args.epoch = epoch;
    args.priority = static_cast<int>(random() % 3);
    const auto known = static_cast<ptrdiff_t>(random() % 40);
    args.output_so_far.assign(alone[index].tokens.begin(), alone[index].tokens.begin() + known);
    const std::vector<TokenId> rest(alone[index].tokens.begin() + known, alone[index].tokens.end());
    if (random() % 2 == 0) {
      const Decoded decoded = DecodeTrees(*verifier, args, DrafterOf(Sample(index), alone[index]));
      EXPECT_TRUE(std::equal(decoded.tokens.begin(), decoded.tokens.end(), rest.begin()));
      return;
    }
    RecordingSink sink;
    OpenAndLeave(verifier, std::move(args), sink, [&](SequenceHandle) {
      if (random() % 2 == 0) {
        sink.WaitReady();
      }
      return Leave::kCancel;
    });
  });
}

}  // namespace
}  // namespace arborist::verifier
