#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <limits>
#include <mutex>
#include <thread>

#include "verifier/testing/drive.h"
#include "verifier/testing/test_verifier.h"

namespace arborist::verifier {
namespace {

using testing::HasSubstr;

constexpr int kVocabulary = 64;

OpenArgs Request(const std::string& id, int prompt_tokens = 20, int max_tokens = 30, int tree_nodes = 8) {
  return MakeOpen(id, RandomTokens(prompt_tokens, kVocabulary, 3), max_tokens, tree_nodes);
}

TokenTree Chain(TokenId root, int nodes) {
  TokenTree tree = TokenTree::RootOnly(root);
  for (int i = 0; i < nodes; ++i) {
    tree.token.push_back(TokenId{1});
    tree.parent.push_back(i);
    tree.score.push_back(-1.0f - static_cast<float>(i));
  }
  return tree;
}

void ExpectError(const absl::Status& status, absl::StatusCode code, const std::string& text) {
  EXPECT_EQ(status.code(), code) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr(text));
}

// Holds the step thread inside a forward pass until it is opened.
class Gate {
 public:
  WrappedModel::Before hook() {
    return [this](StepBatch&, KvPlanes&) {
      std::unique_lock lock(mutex_);
      ++arrived_;
      changed_.notify_all();
      changed_.wait(lock, [this] { return open_; });
      return absl::OkStatus();
    };
  }
  void WaitArrived() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return arrived_ > 0; });
  }
  void Open() {
    const std::lock_guard lock(mutex_);
    open_ = true;
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int arrived_ = 0;
  bool open_ = false;
};

void ExpectAllPagesFree(TestVerifier& verifier) {
  EXPECT_EQ(verifier->free_pages(), verifier->total_pages());
}

TEST(LifecycleTest, OpenRefusesWhatCanNeverRunAndNamesTheField) {
  TestVerifier verifier({});
  RecordingSink sink;
  const auto refused = [&](const std::function<void(OpenArgs&)>& spoil) {
    OpenArgs args = Request("r");
    spoil(args);
    return verifier->Open(std::move(args), &sink).status();
  };
  constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
  ExpectError(refused([](OpenArgs& a) { a.prompt.clear(); }), kInvalid, "prompt has 0 tokens");
  ExpectError(refused([](OpenArgs& a) { a.prompt[3] = TokenId{64}; }), kInvalid,
              "prompt[3]=64, expected an id in");
  ExpectError(refused([](OpenArgs& a) { a.output_so_far = {TokenId{-1}}; }), kInvalid, "output_so_far[0]=-1");
  ExpectError(refused([](OpenArgs& a) { a.max_tokens = 0; }), kInvalid, "max_tokens=0");
  ExpectError(refused([](OpenArgs& a) {
                a.output_so_far.assign(3, TokenId{1});
                a.max_tokens = 3;
              }),
              kInvalid, "max_tokens=3, expected more than the 3 tokens");
  ExpectError(refused([](OpenArgs& a) { a.prompt.resize(1000); }), kInvalid, "the context of 1000");
  ExpectError(refused([](OpenArgs& a) { a.tree_nodes = 65; }), kInvalid, "tree_nodes=65");
  ExpectError(refused([](OpenArgs& a) { a.feature_window = -1; }), kInvalid, "feature_window=-1");
  ExpectError(refused([](OpenArgs& a) { a.sampling.temperature = -1; }), kInvalid, "temperature");
  ExpectError(refused([](OpenArgs& a) { a.sampling.temperature = std::numeric_limits<float>::quiet_NaN(); }),
              kInvalid, "temperature");
  ExpectError(refused([](OpenArgs& a) { a.projection_hash = "x"; }), absl::StatusCode::kFailedPrecondition,
              "PROJECTION_MISMATCH");
  ExpectAllPagesFree(verifier);
}

TEST(LifecycleTest, OpenRefusesARequestLargerThanTheWholeCache) {
  TestVerifierOptions options;
  options.verifier.pages = 4;
  TestVerifier verifier(std::move(options));
  RecordingSink sink;
  ExpectError(verifier->Open(Request("r", 200, 60, 8), &sink).status(), absl::StatusCode::kInvalidArgument,
              "needs pages=5, expected at most 4");
  // 200 + 49 tokens and 8 drafted rows are exactly 4 pages.
  const Decoded decoded = DecodePlain(*verifier, Request("r", 200, 49, 8));
  EXPECT_EQ(decoded.tokens.size(), 49u);
  ExpectAllPagesFree(verifier);
}

TEST(LifecycleTest, AOneTokenPromptNeedsNoPrefill) {
  TestVerifier verifier({});
  const Decoded decoded = DecodePlain(*verifier, Request("r", 1, 5));
  EXPECT_EQ(decoded.tokens.size(), 5u);
  EXPECT_EQ(decoded.finish, FinishReason::kMaxTokens);
  EXPECT_TRUE(decoded.closed.ok());
}

TEST(LifecycleTest, ProgressTellsEveryState) {
  TestVerifierOptions options;
  options.verifier.prefill_chunk = 16;
  TestVerifier verifier(std::move(options));
  RecordingSink sink;
  const auto handle = verifier->Open(Request("r", 41), &sink);
  ASSERT_TRUE(handle.ok());
  sink.WaitReady();
  ASSERT_TRUE(verifier->SubmitDecode(*handle, 1, 2).ok());
  ASSERT_TRUE(sink.TakeCommitted().has_value());
  ASSERT_TRUE(sink.TakeCommitted()->last);
  using P = std::pair<ProgressState, int>;
  EXPECT_EQ(sink.progress(), (std::vector<P>{{ProgressState::kPrefill, 0},
                                             {ProgressState::kPrefill, 16},
                                             {ProgressState::kPrefill, 32},
                                             {ProgressState::kWaiting, 40},
                                             {ProgressState::kVerify, 40},
                                             {ProgressState::kWaiting, 42}}));
  verifier->Finish(*handle);
  EXPECT_TRUE(sink.WaitClosed().ok());
  ExpectAllPagesFree(verifier);
}

TEST(LifecycleTest, ASecondTreeOrDecodeIsRefusedWhileOneIsOutstanding) {
  Gate gate;
  TestVerifierOptions options;
  options.before = gate.hook();
  TestVerifier verifier(std::move(options));
  RecordingSink sink;
  const OpenArgs args = Request("r", 1);
  const auto handle = verifier->Open(args, &sink);
  ASSERT_TRUE(verifier->SubmitDecode(*handle, 7, 1).ok());
  gate.WaitArrived();
  ExpectError(verifier->SubmitDecode(*handle, 8, 1), absl::StatusCode::kFailedPrecondition,
              "round 7 is outstanding");
  ExpectError(verifier->SubmitTree(*handle, 8, TokenTree::RootOnly(args.prompt[0])),
              absl::StatusCode::kFailedPrecondition, "round 7 is outstanding");
  gate.Open();
  EXPECT_EQ(sink.TakeCommitted()->round, 7);
  verifier->Cancel(*handle);
  ExpectError(sink.WaitClosed(), absl::StatusCode::kCancelled, "cancelled");
}

TEST(LifecycleTest, AMalformedTreeIsInvalidAndOneBeyondTheReservationToo) {
  TestVerifier verifier({});
  RecordingSink sink;
  const OpenArgs args = Request("r");
  const auto handle = verifier->Open(args, &sink);
  sink.WaitReady();
  const TokenId root = args.prompt.back();
  constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
  ExpectError(verifier->SubmitTree(*handle, 1, TokenTree::RootOnly(TokenId{(Raw(root) + 1) % kVocabulary})),
              kInvalid, "the last committed token");
  ExpectError(verifier->SubmitTree(*handle, 1, Chain(root, 9)), kInvalid,
              "9 drafted nodes, expected at most 8");
  TokenTree tree = Chain(root, 3);
  tree.parent[2] = 2;
  ExpectError(verifier->SubmitTree(*handle, 1, tree), kInvalid, "tree.parent[2]=2");
  tree = Chain(root, 3);
  tree.token[1] = TokenId{kVocabulary};
  ExpectError(verifier->SubmitTree(*handle, 1, tree), kInvalid, "tree.token[1]=64");
  tree = Chain(root, 3);
  tree.score[2] = 0;
  ExpectError(verifier->SubmitTree(*handle, 1, tree), kInvalid, "tree.score[2]=0");
  // Nothing of this has touched the sequence.
  EXPECT_TRUE(verifier->SubmitTree(*handle, 1, Chain(root, 8)).ok());
  EXPECT_EQ(sink.TakeCommitted()->verified_nodes, 8);
  ExpectError(verifier->SubmitDecode(*handle, 1, 0), kInvalid, "decode.max_tokens=0");
  verifier->Finish(*handle);
  EXPECT_TRUE(sink.WaitClosed().ok());
  ExpectAllPagesFree(verifier);
}

TEST(LifecycleTest, ATreeOfTheLargestBudgetAndDepthFits) {
  TestVerifierOptions options;
  options.verifier.max_tree_nodes = 255;
  options.verifier.max_rows = 300;
  options.verifier.max_logits_rows = 256;
  TestVerifier verifier(std::move(options));
  OpenArgs args = Request("r", 100, 64, 255);
  const Decoded plain = DecodePlain(*verifier, args);
  std::vector<TokenId> text = args.prompt;
  text.insert(text.end(), plain.tokens.begin(), plain.tokens.end());
  // The whole remaining text as a chain of depth 63, and wrong leaves after it.
  const Decoded trees = DecodeTrees(*verifier, args, [&](std::span<const TokenId> tokens) {
    TokenTree tree = TokenTree::RootOnly(tokens.back());
    const auto add = [&](int parent, TokenId token) {
      tree.token.push_back(token);
      tree.parent.push_back(parent);
      tree.score.push_back(-0.1f * static_cast<float>(tree.score.size()));
    };
    for (size_t i = tokens.size(); i < text.size() && tree.nodes() <= kMaxTreeDepth; ++i) {
      add(tree.nodes() - 1, text[i]);
    }
    for (int parent = 0; tree.nodes() < 256; ++parent) {
      for (int wrong = 0; wrong < 5 && tree.nodes() < 256; ++wrong) {
        const TokenId next = text[std::min(tokens.size() + parent, text.size() - 1)];
        add(parent, TokenId{(Raw(next) + 1 + wrong) % kVocabulary});
      }
    }
    return tree;
  });
  EXPECT_TRUE(trees.closed.ok()) << trees.closed;
  EXPECT_EQ(trees.tokens, plain.tokens);
  EXPECT_EQ(trees.rounds, 1);
}

TEST(LifecycleTest, AStopIdInsideAnAcceptedRunIsTheLastToken) {
  TestVerifier verifier({});
  OpenArgs args = Request("r", 20, 60, 16);
  const Decoded whole = DecodePlain(*verifier, args);
  std::vector<TokenId> text = args.prompt;
  text.insert(text.end(), whole.tokens.begin(), whole.tokens.end());
  for (const int at : {0, 1, 5, 17, 40}) {
    args.stop_ids = {whole.tokens[at]};
    const auto first = std::find(whole.tokens.begin(), whole.tokens.end(), whole.tokens[at]);
    const std::vector<TokenId> expected(whole.tokens.begin(), first + 1);
    for (const bool plain : {true, false}) {
      const Decoded stopped = plain ? DecodePlain(*verifier, args)
                                    : DecodeTrees(*verifier, args, ReplayDrafter(text, kVocabulary, 16, 3));
      EXPECT_EQ(stopped.tokens, expected);
      EXPECT_EQ(stopped.finish, FinishReason::kStopId);
      EXPECT_TRUE(stopped.closed.ok());
    }
  }
  ExpectAllPagesFree(verifier);
}

TEST(LifecycleTest, TheContextLimitEndsASequenceWithTrees) {
  TestVerifierOptions options;
  options.verifier.max_context = 90;
  TestVerifier verifier(std::move(options));
  OpenArgs args = Request("r", 70, 500, 16);
  const Decoded plain = DecodePlain(*verifier, args);
  EXPECT_EQ(plain.tokens.size(), 20u);
  EXPECT_EQ(plain.finish, FinishReason::kContextLimit);
  std::vector<TokenId> text = args.prompt;
  text.insert(text.end(), plain.tokens.begin(), plain.tokens.end());
  text.resize(200, TokenId{1});
  const Decoded trees = DecodeTrees(*verifier, args, ReplayDrafter(text, kVocabulary, 16, 3));
  EXPECT_EQ(trees.tokens, plain.tokens);
  EXPECT_EQ(trees.finish, FinishReason::kContextLimit);
}

TEST(LifecycleTest, ADecodeOfSeveralTokensSaysWhichAnswerIsTheLast) {
  TestVerifier verifier({});
  RecordingSink sink;
  const auto handle = verifier->Open(Request("r"), &sink);
  ASSERT_TRUE(verifier->SubmitDecode(*handle, 4, 3).ok());
  for (int i = 0; i < 3; ++i) {
    const auto committed = sink.TakeCommitted();
    ASSERT_TRUE(committed.has_value());
    EXPECT_EQ(committed->round, 4);
    EXPECT_EQ(committed->first_position, 20 + i);
    EXPECT_EQ(committed->last, i == 2);
    EXPECT_EQ(committed->next_budget, 8);
    EXPECT_EQ(committed->feature_rows, 0);
  }
  verifier->Finish(*handle);
  EXPECT_TRUE(sink.WaitClosed().ok());
}

TEST(LifecycleTest, FinishWaitsForTheRoundInFlight) {
  Gate gate;
  TestVerifierOptions options;
  options.before = gate.hook();
  TestVerifier verifier(std::move(options));
  RecordingSink sink;
  const auto handle = verifier->Open(Request("r", 1), &sink);
  ASSERT_TRUE(verifier->SubmitDecode(*handle, 1, 3).ok());
  gate.WaitArrived();
  verifier->Finish(*handle);
  ExpectError(verifier->SubmitDecode(*handle, 2, 1), absl::StatusCode::kFailedPrecondition, "has ended");
  gate.Open();
  EXPECT_TRUE(sink.WaitClosed().ok());
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(sink.TakeCommitted().has_value());
  }
  EXPECT_FALSE(sink.TakeCommitted().has_value());
  ExpectAllPagesFree(verifier);
}

TEST(LifecycleTest, CancelInsideAStepDropsItsResultAndFreesThePages) {
  Gate gate;
  TestVerifierOptions options;
  options.before = gate.hook();
  TestVerifier verifier(std::move(options));
  RecordingSink sink;
  const auto handle = verifier->Open(Request("r", 1), &sink);
  ASSERT_TRUE(verifier->SubmitDecode(*handle, 1, 5).ok());
  gate.WaitArrived();
  EXPECT_LT(verifier->free_pages(), verifier->total_pages());
  verifier->Cancel(*handle);
  EXPECT_FALSE(sink.closed());
  gate.Open();
  ExpectError(sink.WaitClosed(), absl::StatusCode::kCancelled, "cancelled");
  EXPECT_FALSE(sink.TakeCommitted().has_value());
  ExpectAllPagesFree(verifier);
  verifier->Cancel(*handle);  // a closed handle is nobody's
  verifier->Finish(*handle);
}

TEST(LifecycleTest, CancelWhilePrefillingAndWhileQueuedFreesEverything) {
  Gate gate;
  TestVerifierOptions options;
  options.verifier.max_sequences = 1;
  options.before = gate.hook();
  TestVerifier verifier(std::move(options));
  RecordingSink prefilling;
  RecordingSink queued;
  const auto first = verifier->Open(Request("a", 200), &prefilling);
  gate.WaitArrived();
  const auto second = verifier->Open(Request("b"), &queued);
  ASSERT_TRUE(second.ok());
  verifier->Cancel(*first);
  verifier->Cancel(*second);
  gate.Open();
  EXPECT_EQ(prefilling.WaitClosed().code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(queued.WaitClosed().code(), absl::StatusCode::kCancelled);
  ExpectAllPagesFree(verifier);
}

TEST(LifecycleTest, ASequenceWithoutPagesWaitsUntilAnotherEnds) {
  TestVerifierOptions options;
  options.verifier.pages = 2;
  TestVerifier verifier(std::move(options));
  RecordingSink first;
  RecordingSink second;
  const auto holder = verifier->Open(Request("a", 60, 30), &first);
  first.WaitReady();
  ASSERT_TRUE(verifier->Open(Request("b", 60, 30), &second).ok());
  second.WaitProgress(ProgressState::kQueued);
  verifier->Finish(*holder);
  second.WaitReady();
  EXPECT_TRUE(first.closed());
}

TEST(LifecycleTest, ASmallSequencePassesALargeOneThatWaitsForPagesButNotForEver) {
  TestVerifierOptions options;
  options.verifier.pages = 4;
  TestVerifier verifier(std::move(options));
  RecordingSink holder_sink;
  RecordingSink large_sink;
  const auto holder = verifier->Open(Request("holder", 60, 30), &holder_sink);  // 2 pages
  holder_sink.WaitReady();
  const auto large = verifier->Open(Request("large", 150, 30), &large_sink);  // 3 pages
  large_sink.WaitProgress(ProgressState::kQueued);
  for (int i = 0; i < 8; ++i) {
    EXPECT_EQ(DecodePlain(*verifier, Request("small", 5, 3)).tokens.size(), 3u);
  }
  RecordingSink ninth_sink;
  const auto ninth = verifier->Open(Request("ninth", 5, 3), &ninth_sink);
  ninth_sink.WaitProgress(ProgressState::kQueued);
  verifier->Finish(*holder);
  large_sink.WaitReady();
  ninth_sink.WaitReady();
  verifier->Cancel(*large);
  verifier->Cancel(*ninth);
  (void)large_sink.WaitClosed();
  (void)ninth_sink.WaitClosed();
  ExpectAllPagesFree(verifier);
}

TEST(LifecycleTest, AFullQueueIsResourceExhausted) {
  TestVerifierOptions options;
  options.verifier.max_sequences = 1;
  options.verifier.max_queue = 1;
  TestVerifier verifier(std::move(options));
  RecordingSink first;
  RecordingSink second;
  RecordingSink third;
  ASSERT_TRUE(verifier->Open(Request("a"), &first).ok());
  first.WaitReady();
  ASSERT_TRUE(verifier->Open(Request("b"), &second).ok());
  ExpectError(verifier->Open(Request("c"), &third).status(), absl::StatusCode::kResourceExhausted,
              "queue has 1 sequences");
  verifier.Destroy();
  EXPECT_EQ(first.WaitClosed().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(second.WaitClosed().code(), absl::StatusCode::kUnavailable);
}

TEST(LifecycleTest, AHigherEpochTakesOverAndALowerOneIsRefused) {
  std::atomic<int> prompt_rows = 0;
  TestVerifierOptions options;
  options.before = [&](StepBatch& batch, KvPlanes&) {
    prompt_rows += batch.rows - static_cast<int>(batch.logits_row.size());
    return absl::OkStatus();
  };
  TestVerifier verifier(std::move(options));
  OpenArgs args = Request("r", 100, 40);
  const Decoded plain = DecodePlain(*verifier, args);

  RecordingSink old;
  args.epoch = 3;
  const auto handle = verifier->Open(args, &old);
  ASSERT_TRUE(verifier->SubmitDecode(*handle, 1, 10).ok());
  for (int i = 0; i < 10; ++i) {
    ASSERT_TRUE(old.TakeCommitted().has_value());
  }
  prompt_rows = 0;
  args.epoch = 2;
  RecordingSink refused;
  ExpectError(verifier->Open(args, &refused).status(), absl::StatusCode::kFailedPrecondition, "epoch=2");
  args.epoch = 4;
  args.output_so_far.assign(plain.tokens.begin(), plain.tokens.begin() + 10);
  const Decoded rest = DecodePlain(*verifier, args);
  ExpectError(old.WaitClosed(), absl::StatusCode::kAborted, "taken over by epoch 4");
  EXPECT_EQ(rest.tokens, std::vector<TokenId>(plain.tokens.begin() + 10, plain.tokens.end()));
  EXPECT_EQ(prompt_rows, 0) << "all of the prefix was in the pages";
  ExpectError(verifier->SubmitDecode(*handle, 2, 1), absl::StatusCode::kFailedPrecondition, "has ended");
  ExpectAllPagesFree(verifier);
}

TEST(LifecycleTest, ATakeoverThatNeedsMorePagesThanThereAreQueues) {
  TestVerifierOptions options;
  options.verifier.pages = 4;
  TestVerifier verifier(std::move(options));
  RecordingSink first;
  RecordingSink other;
  RecordingSink larger;
  ASSERT_TRUE(verifier->Open(Request("a", 60, 30), &first).ok());
  first.WaitReady();
  const auto holder = verifier->Open(Request("b", 60, 30), &other);
  other.WaitReady();
  OpenArgs args = Request("a", 60, 90);
  args.epoch = 2;
  const auto handle = verifier->Open(args, &larger);
  ASSERT_TRUE(handle.ok());
  EXPECT_EQ(first.WaitClosed().code(), absl::StatusCode::kAborted);
  larger.WaitProgress(ProgressState::kQueued);
  EXPECT_EQ(verifier->free_pages(), 2);
  verifier->Cancel(*holder);
  larger.WaitReady();
  verifier->Cancel(*handle);
  (void)larger.WaitClosed();
  ExpectAllPagesFree(verifier);
}

TEST(LifecycleTest, AFailedStepEndsItsSequencesAndTheNextOneWorks) {
  std::atomic<bool> fail = true;
  TestVerifierOptions options;
  options.before = [&](StepBatch&, KvPlanes&) {
    return fail.exchange(false) ? absl::InternalError("injected") : absl::OkStatus();
  };
  TestVerifier verifier(std::move(options));
  const Decoded failed = DecodePlain(*verifier, Request("a"));
  ExpectError(failed.closed, absl::StatusCode::kInternal, "injected");
  ExpectAllPagesFree(verifier);
  EXPECT_EQ(DecodePlain(*verifier, Request("a")).tokens.size(), 30u);
}

TEST(LifecycleTest, NonFiniteLogitsEndOneSequenceAndSpareItsNeighbours) {
  Gate gate;
  const auto hold = gate.hook();
  TestVerifierOptions options;
  options.before = [&](StepBatch& batch, KvPlanes& planes) { return hold(batch, planes); };
  options.after = [](const StepBatch& batch, KvPlanes&, const ForwardResult& result) {
    for (size_t i = 0; i < batch.logits_row.size(); ++i) {
      if (batch.position[batch.logits_row[i]] == 30) {
        const_cast<float*>(result.logits.row(static_cast<int64_t>(i)))[5] =
            std::numeric_limits<float>::quiet_NaN();
      }
    }
  };
  TestVerifier verifier(std::move(options));
  RecordingSink sick;
  RecordingSink healthy;
  const auto first = verifier->Open(Request("sick", 31), &sick);
  const auto second = verifier->Open(Request("healthy", 41), &healthy);
  ASSERT_TRUE(verifier->SubmitDecode(*first, 1, 20).ok());
  ASSERT_TRUE(verifier->SubmitDecode(*second, 1, 20).ok());
  gate.Open();
  EXPECT_EQ(sick.WaitClosed().code(), absl::StatusCode::kInternal);
  for (int i = 0; i < 20; ++i) {
    EXPECT_TRUE(healthy.TakeCommitted().has_value());
  }
  verifier->Finish(*second);
  EXPECT_TRUE(healthy.WaitClosed().ok());
  ExpectAllPagesFree(verifier);
}

TEST(LifecycleTest, DestructionClosesEverySequenceAsUnavailable) {
  RecordingSink waiting;
  RecordingSink decoding;
  {
    TestVerifier verifier({});
    ASSERT_TRUE(verifier->Open(Request("a"), &waiting).ok());
    const auto handle = verifier->Open(Request("b", 20, 500), &decoding);
    ASSERT_TRUE(verifier->SubmitDecode(*handle, 1, 500).ok());
    waiting.WaitReady();
    ASSERT_TRUE(decoding.TakeCommitted().has_value());
  }
  EXPECT_TRUE(waiting.closed());
  EXPECT_TRUE(decoding.closed());
  ExpectError(waiting.WaitClosed(), absl::StatusCode::kUnavailable, "shutting down");
}

TEST(LifecycleTest, IdleIsNeverStalledAndAHeldStepIs) {
  Gate gate;
  TestVerifierOptions options;
  options.before = gate.hook();
  TestVerifier verifier(std::move(options));
  EXPECT_EQ(verifier->stalled_seconds(), 0);
  RecordingSink sink;
  const auto handle = verifier->Open(Request("r"), &sink);
  gate.WaitArrived();
  std::this_thread::sleep_for(std::chrono::milliseconds(30));
  EXPECT_GT(verifier->stalled_seconds(), 0.02);
  gate.Open();
  sink.WaitReady();
  verifier->Cancel(*handle);
  (void)sink.WaitClosed();
}

TEST(LifecycleTest, OwnersThatComeAndGoInEveryWayLeaveNoPageBehind) {
  TestVerifierOptions options;
  options.verifier.pages = 12;
  options.verifier.max_queue = 64;
  TestVerifier verifier(std::move(options));
  std::vector<std::thread> owners;
  for (int owner = 0; owner < 6; ++owner) {
    owners.emplace_back([&, owner] {
      std::mt19937 random(static_cast<unsigned>(owner));
      for (int i = 0; i < 40; ++i) {
        OpenArgs args = Request("key" + std::to_string(random() % 4), 1 + static_cast<int>(random() % 90));
        args.epoch = i * 6 + owner;
        RecordingSink sink;
        const TokenId root = args.prompt.back();
        const auto handle = verifier->Open(std::move(args), &sink);
        if (!handle.ok()) {
          continue;
        }
        const auto how = random() % 4;
        if (how == 0) {
          sink.WaitReady();
          (void)verifier->SubmitTree(*handle, 1, Chain(root, 8));
        } else if (how == 1) {
          (void)verifier->SubmitDecode(*handle, 1, 1 + static_cast<int>(random() % 40));
        }
        if (random() % 2 == 0) {
          verifier->Cancel(*handle);
        } else {
          verifier->Finish(*handle);
        }
        (void)sink.WaitClosed();
      }
    });
  }
  for (std::thread& owner : owners) {
    owner.join();
  }
  ExpectAllPagesFree(verifier);
}

}  // namespace
}  // namespace arborist::verifier
