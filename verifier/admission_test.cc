#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <limits>
#include <random>
#include <vector>

#include "verifier/testing/lifecycle_support.h"
#include "verifier/testing/owner_storm.h"

namespace arborist::verifier {
namespace {

TEST(AdmissionTest, OpenRefusesWhatCanNeverRunAndNamesTheField) {
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

TEST(AdmissionTest, OpenRefusesARequestLargerThanTheWholeCache) {
  TestVerifierOptions options;
  options.verifier.pages = 4;
  TestVerifier verifier(std::move(options));
  RecordingSink sink;
  ExpectError(verifier->Open(Request("r", 200, 60, 8), &sink).status(), absl::StatusCode::kInvalidArgument,
              "max_tokens=60, expected prompt + max_tokens + tree_nodes within 4 KV pages, not 5");
  // 200 + 49 tokens and 8 drafted rows are exactly 4 pages.
  const Decoded decoded = DecodePlain(*verifier, Request("r", 200, 49, 8));
  EXPECT_EQ(decoded.tokens.size(), 49u);
  ExpectAllPagesFree(verifier);
}

TEST(AdmissionTest, ACacheLargerThanTheMachinesMemoryIsRefusedNotAllocated) {
  VerifierOptions options = TestVerifierOptions().verifier;
  options.pages = int64_t{1} << 40;
  FakeModelOptions fake;
  fake.max_rows = options.max_rows;
  fake.max_logits_rows = options.max_logits_rows;
  ThreadPool pool(1);
  const auto device = OpenCpuDevice(pool);
  const auto verifier = CreateVerifier(options, std::make_unique<FakeModel>(fake), std::nullopt,
                                       kernels::CpuKernels(), *device);
  ExpectError(verifier.status(), absl::StatusCode::kInvalidArgument,
              "kv_pages=1099511627776, expected at most");
}

TEST(AdmissionTest, CancelWhilePrefillingAndWhileQueuedFreesEverything) {
  StepGate gate;
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

TEST(AdmissionTest, ASequenceWithoutPagesWaitsUntilAnotherEnds) {
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
  verifier.Destroy();  // while its sink lives
}

TEST(AdmissionTest, ASmallSequencePassesALargeOneThatWaitsForPagesButNotForEver) {
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

TEST(AdmissionTest, ALargerPriorityIsAdmittedFirst) {
  TestVerifierOptions options;
  options.verifier.max_sequences = 1;
  TestVerifier verifier(std::move(options));
  RecordingSink holder_sink;
  const auto holder = verifier->Open(Request("holder"), &holder_sink);
  holder_sink.WaitReady();
  const std::vector<int> priority = {0, -50, 100, 0, 50};
  std::vector<RecordingSink> sinks(priority.size());
  std::vector<SequenceHandle> handles;
  for (size_t i = 0; i < priority.size(); ++i) {
    OpenArgs args = Request("r" + std::to_string(i));
    args.priority = priority[i];
    handles.push_back(*verifier->Open(args, &sinks[i]));
    sinks[i].WaitProgress(ProgressState::kQueued);
  }
  verifier->Finish(*holder);
  const std::vector<size_t> order = {2, 4, 0, 3, 1};
  for (size_t i = 0; i < order.size(); ++i) {
    sinks[order[i]].WaitReady();
    for (size_t later = i + 1; later < order.size(); ++later) {
      EXPECT_EQ(sinks[order[later]].progress().size(), 1u) << "still queued";
    }
    verifier->Finish(handles[order[i]]);
  }
  EXPECT_TRUE(sinks[1].WaitClosed().ok());
  ExpectAllPagesFree(verifier);
}

TEST(AdmissionTest, AFullQueueIsResourceExhausted) {
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

TEST(AdmissionTest, AHigherEpochTakesOverAndALowerOneIsRefused) {
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

TEST(AdmissionTest, ATakeoverThatNeedsMorePagesThanThereAreQueues) {
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

TEST(AdmissionTest, OwnersThatComeAndGoInEveryWayLeaveNoPageBehind) {
  TestVerifierOptions options;
  options.verifier.pages = 12;
  options.verifier.max_queue = 64;
  TestVerifier verifier(std::move(options));
  OwnerStorm(verifier, 40, [&](std::mt19937& random, int64_t epoch) {
    OpenArgs args = Request("key" + std::to_string(random() % 4), 1 + static_cast<int>(random() % 90));
    args.epoch = epoch;
    const TokenId root = args.prompt.back();
    RecordingSink sink;
    OpenAndLeave(verifier, std::move(args), sink, [&](SequenceHandle handle) {
      const auto how = random() % 4;
      if (how == 0) {
        sink.WaitReady();
        (void)verifier->SubmitTree(handle, 1, Chain(root, 8));
      } else if (how == 1) {
        (void)verifier->SubmitDecode(handle, 1, 1 + static_cast<int>(random() % 40));
      }
      return random() % 2 == 0 ? Leave::kCancel : Leave::kFinish;
    });
  });
}

}  // namespace
}  // namespace arborist::verifier
