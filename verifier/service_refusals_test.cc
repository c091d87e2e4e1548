#include <atomic>
#include <chrono>
#include <cmath>
#include <future>
#include <thread>

#include "verifier/testing/service_fixture.h"

namespace arborist::verifier {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using namespace testing;  // NOLINT: the fixture's vocabulary

TEST_F(VerifierServiceTest, MessagesOutOfOrderAreRefusedByReason) {
  const auto run = [this](const std::vector<v1::VerifyRequest>& requests, bool await_ready) {
    static int id = 0;
    Stream stream(*stub_);
    for (v1::VerifyRequest request : requests) {
      if (request.has_open()) {
        request.mutable_open()->mutable_sequence()->set_request_id("order" + std::to_string(++id));
      }
      stream.Send(request);
      if (request.has_open() && await_ready) {
        EXPECT_TRUE(stream.AwaitReady());
        await_ready = false;
      }
    }
    stream.HalfClose();
    return stream.End();
  };
  const auto precondition = absl::StatusCode::kFailedPrecondition;
  const auto invalid = absl::StatusCode::kInvalidArgument;
  v1::VerifyRequest stop;
  stop.mutable_stop();
  ExpectError(run({}, false), precondition, "NOT_OPEN", "before Open");
  ExpectError(run({TreeRequest(1, 6)}, false), precondition, "NOT_OPEN", "before open");
  ExpectError(run({stop}, false), precondition, "NOT_OPEN", "before open");
  ExpectError(run({OpenRequest(), OpenRequest()}, true), precondition, "ALREADY_OPEN", "second time");
  ExpectError(run({v1::VerifyRequest()}, false), invalid, "BAD_REQUEST", "message=unset");
  ExpectError(run({OpenRequest(), TreeRequest(2, 6)}, true), invalid, "BAD_REQUEST", "round=2, expected 1");
  ExpectError(run({OpenRequest(), DecodeRequest(1, 0)}, true), invalid, "BAD_REQUEST", "decode.max_tokens=0");
  for (const double seconds : {std::nan(""), -1.0, HUGE_VAL}) {
    v1::VerifyRequest tree = TreeRequest(1, 6);
    tree.mutable_tree()->set_draft_seconds(seconds);
    ExpectError(run({OpenRequest(), tree}, true), invalid, "BAD_REQUEST", "tree.draft_seconds=");
  }
  fake_.set_ready_on_open(false);
  ExpectError(run({OpenRequest(), TreeRequest(1, 6)}, false), precondition, "NOT_READY", "WAITING");
  EXPECT_TRUE(Eventually([this] { return fake_.open_sequences() == 0; }));
}

TEST_F(VerifierServiceTest, MalformedTreesAreRefusedAndNameTheNode) {
  struct Case {
    TokenTree tree;
    std::string text;
  };
  const auto id = [](int v) { return TokenId{v}; };
  const float nan = std::nanf("");
  const std::vector<Case> cases = {
      {{}, "0 nodes"},
      {{{id(9)}, {-1}, {0}}, "tree.token[0]=9, expected the last committed token 6"},
      {{{id(6)}, {0}, {0}}, "tree.parent[0]=0"},
      {{{id(6)}, {-1}, {-1}}, "tree.score[0]"},
      {{{id(6), id(7)}, {-1, 1}, {0, -1}}, "tree.parent[1]=1"},
      {{{id(6), id(7)}, {-1, -2}, {0, -1}}, "tree.parent[1]=-2"},
      {{{id(6), id(1000)}, {-1, 0}, {0, -1}}, "tree.token[1]=1000"},
      {{{id(6), id(-1)}, {-1, 0}, {0, -1}}, "tree.token[1]=-1"},
      {{{id(6), id(7)}, {-1, 0}, {0, nan}}, "tree.score[1]"},
      {{{id(6), id(7)}, {-1, 0}, {0, 0.5f}}, "tree.score[1]"},
      {{{id(6), id(7), id(8)}, {-1, 0, 0}, {0, -2, -1}}, "tree.score[2]"},
      {{{id(6), id(7), id(7)}, {-1, 0, 0}, {0, -1, -2}}, "sibling"},
      {{{id(6), id(7)}, {-1}, {0, -1}}, "equal counts"},
  };
  int number = 0;
  for (const Case& c : cases) {
    Stream stream(*stub_);
    stream.Send(OpenRequest("tree" + std::to_string(++number)));
    ASSERT_TRUE(stream.AwaitReady());
    v1::VerifyRequest request;
    request.mutable_tree()->set_round(1);
    EncodeTree(c.tree, *request.mutable_tree()->mutable_tree());
    stream.Send(request);
    ExpectError(stream.End(), absl::StatusCode::kInvalidArgument, "BAD_TREE", c.text);
  }
  EXPECT_EQ(fake_.open_sequences(), 0);
}

TEST_F(VerifierServiceTest, ReaderThatTakesNothingIsEndedAndItsPagesAreFree) {
  fake_.set_feature_bytes(512 << 10);
  Stream stream(*stub_);
  stream.Send(OpenRequest());
  ASSERT_TRUE(stream.AwaitReady());
  stream.Send(DecodeRequest(1, 25));
  EXPECT_TRUE(Eventually([this] { return fake_.open_sequences() == 0; }));
  ExpectError(stream.End(), absl::StatusCode::kResourceExhausted, "SLOW_READER", "unread");
}

// Many times, because a transfer to a late reader once stood still for 10 s in one of five runs.
TEST_F(VerifierServiceTest, ManyFeatureChunksNeitherStallNorHoldUpResults) {
  for (int run = 0; run < 20; ++run) {
    Stream stream(*stub_);
    stream.Send(OpenRequest("bulk" + std::to_string(run)));
    ASSERT_TRUE(stream.AwaitReady());
    SequenceSink* sink = fake_.last_sink();
    std::promise<void> pushed;
    fake_.Post([sink, &pushed] {
      for (int i = 0; i < 100; ++i) {
        sink->OnFeatures(0, 1, std::vector<uint16_t>(32 << 10));
      }
      Committed committed;
      committed.tokens = {TokenId{7}};
      sink->OnCommitted(std::move(committed));
      pushed.set_value();
    });
    pushed.get_future().wait();  // nothing is read meanwhile, so most chunks still wait
    const auto begin = Clock::now();
    int chunks = 0;
    int chunks_before_result = -1;
    v1::VerifyResponse response;
    while (chunks < 100 && stream.Read(response)) {
      chunks += response.has_features() ? 1 : 0;
      if (response.has_committed()) {
        chunks_before_result = chunks;
      }
    }
    ASSERT_EQ(chunks, 100) << stream.End();
    // What gRPC has already taken, a window of it, cannot be overtaken; the rest is.
    EXPECT_GE(chunks_before_result, 0);
    EXPECT_LT(chunks_before_result, 60);
    EXPECT_LT(Clock::now() - begin, std::chrono::seconds(5));
  }
}

TEST_F(VerifierServiceTest, ProgressComesWhileNothingElseHappens) {
  fake_.set_ready_on_open(false);
  Stream stream(*stub_);
  stream.Send(OpenRequest());
  v1::VerifyResponse response;
  ASSERT_TRUE(stream.Read(response));
  const auto begin = Clock::now();
  for (int i = 0; i < 10; ++i) {
    ASSERT_TRUE(stream.Read(response));
    ASSERT_TRUE(response.has_progress());
    EXPECT_EQ(response.progress().state(), v1::PROGRESS_STATE_QUEUED);
  }
  // Ten intervals promise at most 1 s; a bound ten times as wide for a busy machine, and no busy loop.
  EXPECT_LT(Clock::now() - begin, std::chrono::seconds(10));
  EXPECT_GT(Clock::now() - begin, std::chrono::milliseconds(300));
}

TEST_F(VerifierServiceTest, HealthFollowsTheStepsOfTheVerifier) {
  EXPECT_TRUE(Eventually([this] { return serving_.load(); }));
  fake_.set_stalled_seconds(2);
  EXPECT_TRUE(Eventually([this] { return !serving_.load(); }));
  EXPECT_EQ(WhyNotServing(), "no step has ended for 2.0 s");
  fake_.set_stalled_seconds(0);
  EXPECT_TRUE(Eventually([this] { return serving_.load(); }));
}

TEST_F(VerifierServiceTest, HealthSaysThatTheDeviceHasFailed) {
  EXPECT_TRUE(Eventually([this] { return serving_.load(); }));
  fake_.FailDevice();
  EXPECT_TRUE(Eventually([this] { return !serving_.load(); }));
  EXPECT_EQ(WhyNotServing(), "the device failed: injected");
}

TEST_F(VerifierServiceTest, AfterRefuseNewWhatIsOpenGoesOnAndNothingNewIsTaken) {
  EXPECT_TRUE(Eventually([this] { return serving_.load(); }));
  Stream open(*stub_);
  open.Send(OpenRequest("open", 1));
  ASSERT_TRUE(open.AwaitReady());
  service_.RefuseNew("a kernel is wrong");
  service_.RefuseNew("and another");
  EXPECT_TRUE(Eventually([this] { return !serving_.load(); }));
  EXPECT_EQ(WhyNotServing(), "a kernel is wrong");

  grpc::ClientContext context;
  v1::VerifierServiceGetInfoResponse info;
  const absl::Status refused = FromGrpcStatus(stub_->GetInfo(&context, {}, &info));
  ExpectError(refused, absl::StatusCode::kUnavailable, "NOT_SERVING", "a kernel is wrong");
  EXPECT_TRUE(RetryDelayOf(refused).has_value());
  for (const int64_t epoch : {1, 2}) {
    Stream other(*stub_);
    other.Send(OpenRequest("new", epoch));
    ExpectError(other.End(), absl::StatusCode::kUnavailable, "NOT_SERVING", "a kernel is wrong");
  }

  open.Send(TreeRequest(1, 6));
  v1::Committed committed;
  ASSERT_TRUE(open.AwaitCommitted(committed));
  Stream successor(*stub_);  // plain decoding and a drafter take turns at one sequence
  successor.Send(OpenRequest("open", 2));
  ASSERT_TRUE(successor.AwaitReady());
  ExpectError(open.End(), absl::StatusCode::kAborted, "TAKEN_OVER", "higher epoch");
  fake_.set_stalled_seconds(2);
  fake_.set_stalled_seconds(0);
  EXPECT_FALSE(serving_.load());
}

TEST_F(VerifierServiceTest, BeforeItEndsWhatIsOpenMayStillChangeItsOwner) {
  EXPECT_TRUE(Eventually([this] { return serving_.load(); }));
  Stream open(*stub_);
  open.Send(OpenRequest("open", 1));
  ASSERT_TRUE(open.AwaitReady());
  std::atomic<bool> over = false;
  std::thread ending([&] {
    service_.EndOpen(std::chrono::seconds(60));
    over = true;
  });
  EXPECT_TRUE(Eventually([this] { return !serving_.load(); }));

  grpc::ClientContext context;
  v1::VerifierServiceGetInfoResponse info;
  ExpectError(FromGrpcStatus(stub_->GetInfo(&context, {}, &info)), absl::StatusCode::kUnavailable, "DRAINING",
              "end");
  Stream other(*stub_);
  other.Send(OpenRequest("new", 1));
  ExpectError(other.End(), absl::StatusCode::kUnavailable, "DRAINING", "end");
  {
    Stream successor(*stub_);
    successor.Send(OpenRequest("open", 2));
    ASSERT_TRUE(successor.AwaitReady());
    ExpectError(open.End(), absl::StatusCode::kAborted, "TAKEN_OVER", "higher epoch");
    successor.Send(TreeRequest(1, 6));
    v1::Committed committed;
    ASSERT_TRUE(successor.AwaitCommitted(committed));
    EXPECT_FALSE(over.load()) << "one is open";
    successor.Cancel();
    (void)successor.End();
  }
  ending.join();
  service_.EndOpen(std::chrono::seconds(60));  // nothing is open
}

TEST_F(VerifierServiceTest, WhatStaysOpenDoesNotKeepItForEver) {
  Stream open(*stub_);
  open.Send(OpenRequest("open", 1));
  ASSERT_TRUE(open.AwaitReady());
  service_.EndOpen(std::chrono::milliseconds(50));
}

TEST_F(VerifierServiceTest, OpenReachesTheVerifierWithEveryField) {
  v1::VerifyRequest request = OpenRequest("all", 4);
  v1::Open& open = *request.mutable_open();
  open.set_feature_window(9);
  open.set_projection_hash("p1");
  open.set_drafter_projection_hash("p1");
  v1::Sequence& sequence = *open.mutable_sequence();
  sequence.set_sample_index(3);
  sequence.add_output_so_far(7);
  v1::Sampling& sampling = *sequence.mutable_sampling();
  sampling.set_temperature(0.7f);
  sampling.set_top_k(5);
  sampling.set_min_p(0.1f);
  sampling.set_seed(0xFFFFFFFFFFFFFFFFull);
  sampling.add_stop_ids(2);
  Stream stream(*stub_);
  stream.Send(request);
  ASSERT_TRUE(stream.AwaitReady());
  const OpenArgs args = fake_.last_open();
  EXPECT_EQ(args.key.request_id, "all");
  EXPECT_EQ(args.key.sample_index, 3u);
  EXPECT_EQ(args.epoch, 4);
  EXPECT_THAT(args.prompt, ElementsAre(TokenId{5}, TokenId{6}));
  EXPECT_THAT(args.output_so_far, ElementsAre(TokenId{7}));
  EXPECT_EQ(args.sampling.temperature, 0.7f);
  EXPECT_EQ(args.sampling.top_k, 5);
  EXPECT_EQ(args.sampling.top_p, 1.0f);
  EXPECT_EQ(args.sampling.min_p, 0.1f);
  EXPECT_EQ(args.sampling.seed, 0xFFFFFFFFFFFFFFFFull);
  EXPECT_EQ(args.sampling.sample_index, 3u);
  EXPECT_THAT(args.stop_ids, ElementsAre(TokenId{2}));
  EXPECT_EQ(args.max_tokens, 30);
  EXPECT_EQ(args.tree_nodes, 8);
  EXPECT_EQ(args.feature_window, 9);
  EXPECT_EQ(args.projection_hash, "p1");
  EXPECT_EQ(args.drafter_projection_hash, "p1");
}

TEST(VerifierServiceLoadingTest, CallsAreUnavailableUntilTheModelIsThere) {
  VerifierServiceImpl service(std::chrono::milliseconds(1000), nullptr);
  grpc::Service* services[] = {&service};
  auto server = RpcServer::Start({.listen = {"127.0.0.1:0"}}, services);
  ASSERT_TRUE(server.ok()) << server.status();
  auto stub = v1::VerifierService::NewStub(CreateRpcChannel((*server)->addresses()[0], {}));
  grpc::ClientContext context;
  v1::VerifierServiceGetInfoResponse info;
  const absl::Status status = FromGrpcStatus(stub->GetInfo(&context, {}, &info));
  ExpectError(status, absl::StatusCode::kUnavailable, "LOADING", "loaded");
  EXPECT_TRUE(RetryDelayOf(status).has_value());
  Stream stream(*stub);
  ExpectError(stream.End(), absl::StatusCode::kUnavailable, "LOADING", "loaded");
}

}  // namespace
}  // namespace arborist::verifier
