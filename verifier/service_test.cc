#include "verifier/service.h"

#include <unistd.h>

#include <chrono>
#include <cmath>
#include <filesystem>
#include <functional>
#include <string>

#include "arborist/v1/verifier.grpc.pb.h"
#include "common/rpc/protocol.h"
#include "common/rpc/server.h"
#include "common/rpc/status_bridge.h"
#include "common/rpc/tree_codec.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "verifier/testing/fake_verifier.h"

namespace arborist::verifier {
namespace {

using ::testing::ElementsAre;
using testing::FakeVerifier;
using ::testing::HasSubstr;
using Clock = std::chrono::steady_clock;

class VerifierServiceTest : public ::testing::Test {
 protected:
  VerifierServiceTest()
      : service_(std::chrono::milliseconds(1000), [this](bool serving) { serving_ = serving; }) {
    service_.Serve(&fake_, {.fingerprint = "f1",
                            .projection_hash = "p1",
                            .model_name = "fake",
                            .vocabulary_size = FakeVerifier::kVocabulary,
                            .hidden_size = FakeVerifier::kHidden,
                            .context_length = 64,
                            .max_tree_nodes = 31,
                            .max_sequences = 4});
    socket_ = std::filesystem::temp_directory_path() / ("verifier_service_test." + std::to_string(getpid()));
    grpc::Service* services[] = {&service_};
    auto server = RpcServer::Start(
        {.listen = {"unix:" + socket_.string()}, .drain = std::chrono::milliseconds(200)}, services);
    EXPECT_TRUE(server.ok()) << server.status();
    server_ = std::move(*server);
    channel_ = CreateRpcChannel("unix:" + socket_.string(), {});
    stub_ = v1::VerifierService::NewStub(channel_);
  }
  ~VerifierServiceTest() override {
    server_->Drain();
    service_.Stop();
  }

  static v1::VerifyRequest OpenRequest(const std::string& id = "r1", int64_t epoch = 1) {
    v1::VerifyRequest request;
    v1::Sequence& sequence = *request.mutable_open()->mutable_sequence();
    sequence.set_protocol_version(kProtocolVersion);
    sequence.set_request_id(id);
    sequence.set_epoch(epoch);
    sequence.add_prompt(5);
    sequence.add_prompt(6);
    sequence.mutable_sampling()->set_max_tokens(30);
    sequence.set_tree_nodes(8);
    sequence.set_fingerprint("f1");
    return request;
  }
  static v1::VerifyRequest TreeRequest(int64_t round, int32_t root) {
    v1::VerifyRequest request;
    request.mutable_tree()->set_round(round);
    EncodeTree({.token = {TokenId{root}, TokenId{(root + 1) % 1000}}, .parent = {-1, 0}, .score = {0, -1}},
               *request.mutable_tree()->mutable_tree());
    return request;
  }
  static v1::VerifyRequest DecodeRequest(int64_t round, int tokens) {
    v1::VerifyRequest request;
    request.mutable_decode()->set_round(round);
    request.mutable_decode()->set_max_tokens(tokens);
    return request;
  }

  FakeVerifier fake_;
  std::atomic<bool> serving_{false};
  VerifierServiceImpl service_;
  std::filesystem::path socket_;
  std::unique_ptr<RpcServer> server_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<v1::VerifierService::Stub> stub_;
};

// A blocking client of one Verify stream.
class Stream {
 public:
  explicit Stream(v1::VerifierService::Stub& stub) {
    context_.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(30));
    stream_ = stub.Verify(&context_);
  }
  ~Stream() {
    if (!finished_) {
      context_.TryCancel();
      (void)End();
    }
  }
  void Send(const v1::VerifyRequest& request) { stream_->Write(request); }
  void HalfClose() { stream_->WritesDone(); }
  void Cancel() { context_.TryCancel(); }
  bool Read(v1::VerifyResponse& response) { return stream_->Read(&response); }
  // Reads until `wanted` says true; false at the end of the stream.
  bool ReadUntil(v1::VerifyResponse& response, const std::function<bool(const v1::VerifyResponse&)>& wanted) {
    while (Read(response)) {
      if (wanted(response)) {
        return true;
      }
    }
    return false;
  }
  bool AwaitReady() {
    v1::VerifyResponse response;
    return ReadUntil(response, [](const v1::VerifyResponse& r) {
      return r.progress().state() == v1::PROGRESS_STATE_WAITING;
    });
  }
  bool AwaitCommitted(v1::Committed& committed) {
    v1::VerifyResponse response;
    const bool found = ReadUntil(response, [](const v1::VerifyResponse& r) { return r.has_committed(); });
    committed = response.committed();
    return found;
  }
  absl::Status End() {
    v1::VerifyResponse response;
    while (Read(response)) {
    }
    finished_ = true;
    return FromGrpcStatus(stream_->Finish());
  }

 private:
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReaderWriter<v1::VerifyRequest, v1::VerifyResponse>> stream_;
  bool finished_ = false;
};

bool Eventually(const std::function<bool()>& condition) {
  for (const auto end = Clock::now() + std::chrono::seconds(20); Clock::now() < end;) {
    if (condition()) {
      return true;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return false;
}

void ExpectError(const absl::Status& status, absl::StatusCode code, const std::string& reason,
                 const std::string& text) {
  EXPECT_EQ(status.code(), code) << status;
  EXPECT_EQ(ReasonOf(status), reason) << status;
  EXPECT_EQ(OriginOf(status), "verifier") << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr(text));
}

TEST_F(VerifierServiceTest, InfoSaysWhatThisVerifierIs) {
  grpc::ClientContext context;
  v1::VerifierServiceGetInfoResponse info;
  ASSERT_TRUE(stub_->GetInfo(&context, {}, &info).ok());
  EXPECT_EQ(info.protocol_version(), kProtocolVersion);
  EXPECT_EQ(info.fingerprint(), "f1");
  EXPECT_EQ(info.projection_hash(), "p1");
  EXPECT_EQ(info.vocabulary_size(), 1000);
  EXPECT_EQ(info.context_length(), 64);
  EXPECT_EQ(info.max_tree_nodes(), 31);
  EXPECT_EQ(info.free_pages(), 7);
}

TEST_F(VerifierServiceTest, TreesAndDecodesAreAnsweredInOrderAndStopEndsWithOk) {
  Stream stream(*stub_);
  stream.Send(OpenRequest());
  ASSERT_TRUE(stream.AwaitReady());
  v1::Committed committed;
  stream.Send(TreeRequest(1, 6));
  ASSERT_TRUE(stream.AwaitCommitted(committed));
  EXPECT_EQ(committed.round(), 1);
  EXPECT_EQ(committed.first_position(), 2);
  EXPECT_THAT(committed.token_ids(), ElementsAre(7));
  EXPECT_EQ(committed.verified_nodes(), 1);
  EXPECT_TRUE(committed.last());
  stream.Send(DecodeRequest(2, 3));
  std::vector<int32_t> tokens;
  do {
    ASSERT_TRUE(stream.AwaitCommitted(committed));
    EXPECT_EQ(committed.round(), 2);
    tokens.insert(tokens.end(), committed.token_ids().begin(), committed.token_ids().end());
  } while (!committed.last());
  EXPECT_THAT(tokens, ElementsAre(8, 9, 10));
  v1::VerifyRequest stop;
  stop.mutable_stop();
  stream.Send(stop);
  EXPECT_TRUE(stream.End().ok());
  EXPECT_EQ(fake_.open_sequences(), 0);
}

// The answer overtakes the completion of the client's and the server's writes here; a second StartWrite
// before that completion aborts the process.
TEST_F(VerifierServiceTest, ManyFastRoundsNeverStartAWriteBeforeThePreviousOneCompleted) {
  Stream stream(*stub_);
  v1::VerifyRequest open = OpenRequest();
  stream.Send(open);
  ASSERT_TRUE(stream.AwaitReady());
  for (int round = 1; round <= 2000; ++round) {
    stream.Send(TreeRequest(round, (5 + round) % 1000));
    v1::Committed committed;
    ASSERT_TRUE(stream.AwaitCommitted(committed)) << stream.End();
    ASSERT_EQ(committed.round(), round);
  }
}

TEST_F(VerifierServiceTest, HalfCloseFinishesTheRoundInFlight) {
  fake_.HoldSteps(true);
  Stream stream(*stub_);
  stream.Send(OpenRequest());
  ASSERT_TRUE(stream.AwaitReady());
  stream.Send(TreeRequest(1, 6));
  stream.HalfClose();
  ASSERT_TRUE(fake_.WaitForCall("finish"));
  fake_.HoldSteps(false);
  v1::Committed committed;
  ASSERT_TRUE(stream.AwaitCommitted(committed));
  EXPECT_THAT(committed.token_ids(), ElementsAre(7));
  EXPECT_TRUE(stream.End().ok());
  EXPECT_EQ(fake_.open_sequences(), 0);
}

TEST_F(VerifierServiceTest, CancelFreesTheSequence) {
  fake_.HoldSteps(true);
  Stream stream(*stub_);
  stream.Send(OpenRequest());
  ASSERT_TRUE(stream.AwaitReady());
  stream.Send(TreeRequest(1, 6));
  ASSERT_TRUE(fake_.WaitForCall("tree"));
  stream.Cancel();
  EXPECT_TRUE(Eventually([this] { return fake_.open_sequences() == 0; }));
  EXPECT_EQ(stream.End().code(), absl::StatusCode::kCancelled);
}

TEST_F(VerifierServiceTest, StormOfCancelsLeavesNothingBehind) {
  for (int i = 0; i < 100; ++i) {
    Stream stream(*stub_);
    stream.Send(OpenRequest("storm" + std::to_string(i)));
    if (i % 3 != 0) {
      ASSERT_TRUE(stream.AwaitReady());
      stream.Send(DecodeRequest(1, 1 + i % 7));
    }
    stream.Cancel();
  }
  EXPECT_TRUE(Eventually([this] { return fake_.open_sequences() == 0; }));
}

TEST_F(VerifierServiceTest, SecondTreeInFlightEndsTheStream) {
  fake_.HoldSteps(true);
  Stream stream(*stub_);
  stream.Send(OpenRequest());
  ASSERT_TRUE(stream.AwaitReady());
  stream.Send(TreeRequest(1, 6));
  stream.Send(TreeRequest(2, 6));
  ExpectError(stream.End(), absl::StatusCode::kFailedPrecondition, "ROUND_IN_FLIGHT", "in flight");
  EXPECT_EQ(fake_.open_sequences(), 0);
}

TEST_F(VerifierServiceTest, HigherEpochEndsTheOlderStreamAndALowerOneIsRefused) {
  Stream older(*stub_);
  older.Send(OpenRequest("same", 2));
  ASSERT_TRUE(older.AwaitReady());
  Stream newer(*stub_);
  newer.Send(OpenRequest("same", 3));
  ASSERT_TRUE(newer.AwaitReady());
  ExpectError(older.End(), absl::StatusCode::kAborted, "TAKEN_OVER", "higher epoch");
  Stream zombie(*stub_);
  zombie.Send(OpenRequest("same", 1));
  ExpectError(zombie.End(), absl::StatusCode::kFailedPrecondition, "STALE_EPOCH", "epoch");
  EXPECT_EQ(fake_.open_sequences(), 1);
}

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

TEST_F(VerifierServiceTest, ManyFeatureChunksDoNotHoldUpResults) {
  Stream stream(*stub_);
  stream.Send(OpenRequest());
  ASSERT_TRUE(stream.AwaitReady());
  SequenceSink* sink = fake_.last_sink();
  fake_.Post([sink] {
    for (int i = 0; i < 100; ++i) {
      sink->OnFeatures(0, 1, std::vector<uint16_t>(32 << 10));
    }
  });
  stream.Send(TreeRequest(1, 6));
  int chunks = 0;
  int chunks_before_result = -1;
  v1::VerifyResponse response;
  while (chunks < 100 && stream.Read(response)) {
    chunks += response.has_features() ? 1 : 0;
    if (response.has_committed()) {
      chunks_before_result = chunks;
    }
  }
  EXPECT_EQ(chunks, 100);
  // What gRPC has already taken cannot be overtaken; most of the rest can.
  EXPECT_GE(chunks_before_result, 0);
  EXPECT_LT(chunks_before_result, 90);
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
  fake_.set_stalled_seconds(0);
  EXPECT_TRUE(Eventually([this] { return serving_.load(); }));
}

TEST_F(VerifierServiceTest, OpenReachesTheVerifierWithEveryField) {
  v1::VerifyRequest request = OpenRequest("all", 4);
  v1::Open& open = *request.mutable_open();
  open.set_feature_window(9);
  open.set_projection_hash("p1");
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
