// Log-probabilities of prompts: who computes them, who is told, and what else goes on meanwhile.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <limits>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "verifier/testing/lifecycle_support.h"
#include "verifier/testing/owner_storm.h"

namespace arborist::verifier {
namespace {

constexpr int kPromptTokens = 200;  // three whole pages and 7 rows up to the root
constexpr int kRows = kPromptTokens - 1;

OpenArgs Asking(uint32_t sample, int prompt_tokens = kPromptTokens, const std::string& request = "r") {
  OpenArgs args = Request(request, prompt_tokens);
  args.key.sample_index = sample;
  args.controls.prompt_log_probs = true;
  return args;
}

// A verifier that counts rows of prompts, scored ones and others.
class Counting {
 public:
  explicit Counting(TestVerifierOptions options = {}) {
    options.verifier.before_step = [this](std::span<const StepTree>, std::span<const StepChunk> chunks,
                                          const KvPlanes&, Device&) {
      for (const StepChunk& chunk : chunks) {
        (chunk.next.empty() ? plain_ : scored_) += static_cast<int>(chunk.tokens.size());
      }
    };
    verifier_.emplace(std::move(options));
  }

  Verifier& operator*() { return **verifier_; }
  // What it is told; its rows are counted from here on.
  std::vector<float> Open(const OpenArgs& args, RecordingSink& sink) {
    scored_ = 0;
    plain_ = 0;
    EXPECT_TRUE((*verifier_)->Open(args, &sink).ok());
    sink.WaitReady();
    return sink.prompt_log_probs();
  }
  void Destroy() { verifier_->Destroy(); }

  int scored() const { return scored_; }
  int plain() const { return plain_; }

 private:
  std::atomic<int> scored_ = 0;
  std::atomic<int> plain_ = 0;
  std::optional<TestVerifier> verifier_;
};

TEST(PromptScoringTest, SamplesTakeTheValuesOfThePagesThatTheyShare) {
  Counting verifier;
  RecordingSink sinks[4];
  const std::vector<float> first = verifier.Open(Asking(0), sinks[0]);
  EXPECT_EQ(first.size(), static_cast<size_t>(kRows));
  EXPECT_EQ(verifier.scored(), kRows);
  for (uint32_t i = 1; i < 4; ++i) {
    EXPECT_EQ(verifier.Open(Asking(i), sinks[i]), first);
    // All values are known: the rows after the last whole page are computed, not scored.
    EXPECT_EQ(verifier.scored(), 0);
    EXPECT_EQ(verifier.plain(), 7);
  }
  verifier.Destroy();
}

TEST(PromptScoringTest, PagesOfWhoDidNotAskAreNotSharedUntilTheValuesAreKnown) {
  Counting verifier;
  RecordingSink sinks[4];
  OpenArgs silent = Asking(0);
  silent.controls.prompt_log_probs = false;
  EXPECT_TRUE(verifier.Open(silent, sinks[0]).empty());
  EXPECT_EQ(verifier.plain(), kRows);
  const std::vector<float> values = verifier.Open(Asking(1), sinks[1]);
  EXPECT_EQ(verifier.scored(), kRows);
  EXPECT_EQ(verifier.Open(Asking(2), sinks[2]), values);
  EXPECT_EQ(verifier.scored() + verifier.plain(), 7);
  silent.key.sample_index = 3;
  EXPECT_TRUE(verifier.Open(silent, sinks[3]).empty());
  EXPECT_EQ(verifier.scored() + verifier.plain(), 7) << "who does not ask takes the pages of anybody";
  verifier.Destroy();
}

TEST(PromptScoringTest, ALongerPromptScoresOnlyWhatTheShorterOneDidNot) {
  Counting verifier;
  RecordingSink sinks[2];
  verifier.Open(Asking(0, 150), sinks[0]);
  const std::vector<float> values = verifier.Open(Asking(1), sinks[1]);
  EXPECT_EQ(values.size(), static_cast<size_t>(kRows));
  EXPECT_EQ(verifier.scored(), kRows - 128);
  verifier.Destroy();
  RecordingSink alone;
  Counting other;
  EXPECT_EQ(other.Open(Asking(0), alone), values);
  other.Destroy();
}

TEST(PromptScoringTest, AnOwnerThatTakesOverIsToldAgainAndComputesNothing) {
  Counting verifier;
  RecordingSink first;
  RecordingSink second;
  const std::vector<float> values = verifier.Open(Asking(0), first);
  OpenArgs args = Asking(0);
  args.epoch = 2;
  EXPECT_EQ(verifier.Open(args, second), values);
  EXPECT_EQ(verifier.scored() + verifier.plain(), 0);
  EXPECT_EQ(first.WaitClosed().code(), absl::StatusCode::kAborted);
  verifier.Destroy();
}

TEST(PromptScoringTest, AnOwnerThatAsksAfterOneThatDidNotComputesThePromptAnew) {
  Counting verifier;
  RecordingSink first;
  RecordingSink second;
  OpenArgs args = Asking(0);
  args.controls.prompt_log_probs = false;
  verifier.Open(args, first);
  args.controls.prompt_log_probs = true;
  args.epoch = 2;
  EXPECT_EQ(verifier.Open(args, second).size(), static_cast<size_t>(kRows));
  EXPECT_EQ(verifier.scored(), kRows);
  verifier.Destroy();
}

TEST(PromptScoringTest, OutputThatIsResumedIsNotScored) {
  Counting verifier;
  RecordingSink sink;
  OpenArgs args = Asking(0, 100);
  args.output_so_far = RandomTokens(20, kVocabulary, 5);
  EXPECT_EQ(verifier.Open(args, sink).size(), 99u);
  EXPECT_EQ(verifier.scored(), 99);
  EXPECT_EQ(verifier.plain(), 20);
  verifier.Destroy();
}

TEST(PromptScoringTest, ALongPromptThatIsTakenOverIsToldInMessagesOfTheirBound) {
  constexpr int kLong = 4200;
  TestVerifierOptions options;
  options.verifier.max_context = kLong + 100;
  options.verifier.pages = 80;
  options.verifier.max_rows = 600;
  options.verifier.max_logits_rows = 500;
  options.verifier.prefill_chunk = 500;
  Counting verifier(std::move(options));
  RecordingSink first;
  RecordingSink second;
  const std::vector<float> values = verifier.Open(Asking(0, kLong), first);
  EXPECT_EQ(values.size(), static_cast<size_t>(kLong - 1));
  OpenArgs args = Asking(0, kLong);
  args.epoch = 2;
  EXPECT_EQ(verifier.Open(args, second), values);  // the sink checks the bound
  verifier.Destroy();
}

TEST(PromptScoringTest, BrokenLogitsEndTheSequenceWhosePromptTheyAreOf) {
  // Planted: logits of a prompt's row 5 are not finite.
  const int32_t marked = Raw(Asking(0).prompt[5]);
  TestVerifierOptions options;
  options.after = [&](const StepBatch& batch, KvPlanes&, const ForwardResult& result) {
    for (int row = 0; row < static_cast<int>(batch.logits_row.size()); ++row) {
      if (batch.position[row] == 5 && Raw(batch.token[row]) == marked) {
        const_cast<float*>(result.logits.row(row))[0] = std::numeric_limits<float>::quiet_NaN();
      }
    }
  };
  TestVerifier verifier(std::move(options));
  OpenArgs healthy = Asking(0, kPromptTokens, "healthy");
  healthy.prompt[5] = TokenId{(marked + 1) % kVocabulary};
  Decoded good;
  std::thread owner([&] { good = DecodePlain(*verifier, healthy); });
  const Decoded bad = DecodePlain(*verifier, Asking(0));
  owner.join();
  ExpectError(bad.closed, absl::StatusCode::kInternal, "finite");
  EXPECT_TRUE(bad.tokens.empty());
  EXPECT_TRUE(good.closed.ok()) << good.closed;
  EXPECT_EQ(good.prompt_log_probs.size(), static_cast<size_t>(kRows));
  EXPECT_EQ(good.tokens.size(), 30u);
  ExpectAllPagesFree(verifier);
}

TEST(PromptScoringTest, APromptIsScoredBesideTreesThatWantAllRowsWithLogits) {
  TestVerifierOptions options;
  options.verifier.max_logits_rows = 17;
  options.verifier.max_tree_nodes = 16;
  Counting verifier(std::move(options));
  std::atomic<bool> stop = false;
  std::vector<std::thread> owners;
  for (int i = 0; i < 3; ++i) {
    owners.emplace_back([&, i] {
      const std::vector<TokenId> prompt = RandomTokens(20, kVocabulary, 40 + i);
      for (int round = 0; !stop; ++round) {
        DecodeTrees(*verifier,
                    MakeOpen("trees" + std::to_string(i) + "." + std::to_string(round), prompt, 100, 16),
                    ReplayDrafter(prompt, kVocabulary, 16, round));
      }
    });
  }
  RecordingSink sink;
  EXPECT_EQ(verifier.Open(Asking(0), sink).size(), static_cast<size_t>(kRows));
  stop = true;
  for (std::thread& owner : owners) {
    owner.join();
  }
  verifier.Destroy();
}

TEST(PromptScoringTest, OwnersThatComeAndGoWhileTheirPromptsAreScoredAreToldTheirValuesOnly) {
  RecordingSink alone_sink;
  Counting alone;
  const std::vector<float> values = alone.Open(Asking(0), alone_sink);
  alone.Destroy();
  TestVerifierOptions options;
  options.verifier.pages = 14;
  options.verifier.max_queue = 64;
  options.verifier.prefill_chunk = 24;
  TestVerifier verifier(std::move(options));
  OwnerStorm(verifier, 25, [&](std::mt19937& random, int64_t epoch) {
    const int tokens = 100 + static_cast<int>(random() % 101);
    OpenArgs args = Asking(random() % 4, tokens);
    args.epoch = epoch;
    args.controls.prompt_log_probs = random() % 4 != 0;
    RecordingSink sink;
    OpenAndLeave(verifier, args, sink, [&](SequenceHandle) {
      if (random() % 2 == 0) {
        sink.WaitReady();
      }
      return Leave::kCancel;
    });
    const std::vector<float> told = sink.prompt_log_probs();
    ASSERT_LE(told.size(), args.controls.prompt_log_probs ? static_cast<size_t>(tokens - 1) : 0u);
    EXPECT_TRUE(std::equal(told.begin(), told.end(), values.begin()));
  });
}

}  // namespace
}  // namespace arborist::verifier
