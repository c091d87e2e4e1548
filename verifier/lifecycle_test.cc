#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <limits>
#include <random>
#include <thread>
#include <vector>

#include "verifier/testing/lifecycle_support.h"

namespace arborist::verifier {
namespace {

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
  StepGate gate;
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

TEST(LifecycleTest, TheContextLimitCutsAnAcceptedRunAnywhere) {
  constexpr int kPrompt = 70;
  constexpr int kNodes = 16;
  const OpenArgs args = Request("r", kPrompt, 60, kNodes);
  const Decoded whole = DecodePlain(*TestVerifier({}), args);
  TokenTree run = TokenTree::RootOnly(args.prompt.back());  // all of it is accepted, if the context holds it
  for (int node = 1; node <= kNodes; ++node) {
    run.token.push_back(whole.tokens[node - 1]);
    run.parent.push_back(node - 1);
    run.score.push_back(-0.1f * static_cast<float>(node));
  }
  for (int left = 1; left <= kNodes + 1; ++left) {
    TestVerifierOptions options;
    options.verifier.max_context = kPrompt + left;
    const Decoded cut =
        DecodeTrees(*TestVerifier(std::move(options)), args, [&](std::span<const TokenId>) { return run; });
    EXPECT_EQ(cut.tokens, std::vector<TokenId>(whole.tokens.begin(), whole.tokens.begin() + left));
    EXPECT_EQ(cut.log_probs, std::vector<float>(whole.log_probs.begin(), whole.log_probs.begin() + left));
    EXPECT_EQ(cut.rounds, 1);
    EXPECT_EQ(cut.finish, FinishReason::kContextLimit);
    EXPECT_TRUE(cut.closed.ok()) << cut.closed;
  }
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
  StepGate gate;
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
  StepGate gate;
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
  StepGate gate;
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
  StepGate gate;
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

}  // namespace
}  // namespace arborist::verifier
