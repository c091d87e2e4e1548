#include "common/rpc/server_outbox.h"

#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace arborist {
namespace {

using ::testing::ElementsAre;

struct Note {
  std::string text;
  size_t ByteSizeLong() const { return text.size(); }
};

// The reactor's side: keeps what was started and counts overlaps.
struct Reactor {
  ServerOutbox<Note> outbox{{.messages = 2, .bytes = 10},
                            [this](Note& tail, Note& next) {
                              if (!merge || tail.text.back() != next.text.back()) {
                                return false;
                              }
                              tail.text += next.text;
                              return true;
                            },
                            [this](const Note* note) {
                              EXPECT_FALSE(writing);
                              EXPECT_FALSE(finished);
                              writing = true;
                              written.push_back(note->text);
                            },
                            [this](const grpc::Status& status) {
                              EXPECT_FALSE(writing);
                              EXPECT_FALSE(finished);
                              finished = true;
                              code = status.error_code();
                            }};
  void Complete(bool ok = true) {
    writing = false;
    outbox.OnWriteDone(ok);
  }
  bool merge = false;
  bool writing = false;
  bool finished = false;
  grpc::StatusCode code = grpc::StatusCode::UNKNOWN;
  std::vector<std::string> written;
};

TEST(ServerOutboxTest, WritesWaitForEachOther) {
  Reactor reactor;
  EXPECT_TRUE(reactor.outbox.PushResult({"a"}));
  EXPECT_TRUE(reactor.outbox.PushResult({"b"}));
  EXPECT_THAT(reactor.written, ElementsAre("a"));
  reactor.Complete();
  EXPECT_THAT(reactor.written, ElementsAre("a", "b"));
}

TEST(ServerOutboxTest, ResultsGoBeforeSignsOfLifeBeforeBulk) {
  Reactor reactor;
  reactor.outbox.PushBulk({"bulk1"});
  reactor.outbox.PushBulk({"bulk2"});
  reactor.outbox.PushSignOfLife({"old"});
  reactor.outbox.PushSignOfLife({"alive"});
  EXPECT_TRUE(reactor.outbox.PushResult({"r"}));
  for (int i = 0; i < 3; ++i) {
    reactor.Complete();
  }
  EXPECT_THAT(reactor.written, ElementsAre("bulk1", "r", "alive", "bulk2"));
}

TEST(ServerOutboxTest, APrefaceOfAnyLengthGoesBeforeTheResults) {
  Reactor reactor;
  reactor.outbox.PushSignOfLife({"old"});
  for (const char* text : {"p1", "p2", "p3", "p4", "p5"}) {
    reactor.outbox.PushPreface({text});
  }
  EXPECT_TRUE(reactor.outbox.PushResult({"r"}));
  reactor.outbox.PushSignOfLife({"alive"});
  for (int i = 0; i < 7; ++i) {
    reactor.Complete();
  }
  EXPECT_THAT(reactor.written, ElementsAre("old", "p1", "p2", "p3", "p4", "p5", "r", "alive"));
}

TEST(ServerOutboxTest, APrefaceThatWaitsIsMergedSentBeforeACloseAndDroppedByAnAbort) {
  Reactor closed;
  closed.merge = true;
  for (int i = 0; i < 4; ++i) {
    closed.outbox.PushPreface({"x"});
  }
  closed.outbox.PushPreface({"y"});
  closed.outbox.Close(grpc::Status::OK);
  closed.outbox.PushPreface({"z"});  // swallowed
  for (int i = 0; i < 3; ++i) {
    closed.Complete();
  }
  EXPECT_THAT(closed.written, ElementsAre("x", "xxx", "y"));
  EXPECT_TRUE(closed.finished);

  Reactor aborted;
  aborted.outbox.PushPreface({"a"});
  aborted.outbox.PushPreface({"b"});
  aborted.outbox.Abort(grpc::Status::CANCELLED);
  aborted.Complete();
  EXPECT_THAT(aborted.written, ElementsAre("a"));
  EXPECT_TRUE(aborted.finished);
}

TEST(ServerOutboxTest, BoundsMessagesAndBytes) {
  Reactor reactor;
  EXPECT_TRUE(reactor.outbox.PushResult({"in flight"}));
  EXPECT_TRUE(reactor.outbox.PushResult({"1"}));
  EXPECT_TRUE(reactor.outbox.PushResult({"2"}));
  EXPECT_FALSE(reactor.outbox.PushResult({"3"}));
  Reactor bytes;
  EXPECT_TRUE(bytes.outbox.PushResult({"in flight"}));
  EXPECT_TRUE(bytes.outbox.PushResult({std::string(100, 'x')}));  // one alone always fits
  EXPECT_FALSE(bytes.outbox.PushResult({"y"}));
}

TEST(ServerOutboxTest, MergesWhatWaits) {
  Reactor reactor;
  reactor.merge = true;
  for (int i = 0; i < 6; ++i) {
    EXPECT_TRUE(reactor.outbox.PushResult({"x"}));
  }
  reactor.Complete();
  EXPECT_THAT(reactor.written, ElementsAre("x", "xxxxx"));
}

TEST(ServerOutboxTest, CloseSendsWhatWaitsAndAbortDoesNot) {
  Reactor closed;
  EXPECT_TRUE(closed.outbox.PushResult({"a"}));
  EXPECT_TRUE(closed.outbox.PushResult({"b"}));
  closed.outbox.Close(grpc::Status::OK);
  closed.outbox.Abort(grpc::Status(grpc::StatusCode::INTERNAL, "too late"));
  EXPECT_TRUE(closed.outbox.PushResult({"c"}));  // swallowed
  EXPECT_FALSE(closed.finished);
  closed.Complete();
  closed.Complete();
  EXPECT_THAT(closed.written, ElementsAre("a", "b"));
  EXPECT_TRUE(closed.finished);
  EXPECT_EQ(closed.code, grpc::StatusCode::OK);

  Reactor aborted;
  EXPECT_TRUE(aborted.outbox.PushResult({"a"}));
  EXPECT_TRUE(aborted.outbox.PushResult({"b"}));
  aborted.outbox.Abort(grpc::Status(grpc::StatusCode::RESOURCE_EXHAUSTED, "slow"));
  EXPECT_FALSE(aborted.finished);  // a write is in flight
  aborted.Complete();
  EXPECT_THAT(aborted.written, ElementsAre("a"));
  EXPECT_TRUE(aborted.finished);
  EXPECT_EQ(aborted.code, grpc::StatusCode::RESOURCE_EXHAUSTED);
}

TEST(ServerOutboxTest, FailedWriteDropsWhatWaitsAndStillFinishesOnce) {
  Reactor reactor;
  EXPECT_TRUE(reactor.outbox.PushResult({"a"}));
  EXPECT_TRUE(reactor.outbox.PushResult({"b"}));
  reactor.Complete(/*ok=*/false);
  EXPECT_THAT(reactor.written, ElementsAre("a"));
  reactor.outbox.Abort(grpc::Status::CANCELLED);
  EXPECT_TRUE(reactor.finished);
}

TEST(ServerOutboxTest, ABrokenStreamOwesNoBytesAnyMore) {
  Reactor reactor;
  EXPECT_TRUE(reactor.outbox.PushResult({"a"}));
  EXPECT_TRUE(reactor.outbox.PushResult({"123456789"}));
  EXPECT_FALSE(reactor.outbox.PushResult({"12"}));  // no room beside the nine
  reactor.Complete(/*ok=*/false);
  EXPECT_TRUE(reactor.outbox.PushResult({"a"}));
  EXPECT_TRUE(reactor.outbox.PushResult({"1234567"}));
  EXPECT_TRUE(reactor.outbox.PushResult({"12"}));
}

TEST(ServerOutboxTest, AWriteIsOverdueFromItsOwnStart) {
  constexpr std::chrono::milliseconds kPatience{20};
  Reactor reactor;
  EXPECT_FALSE(reactor.outbox.WriteOverdue(kPatience));
  EXPECT_TRUE(reactor.outbox.PushResult({"a"}));
  EXPECT_TRUE(reactor.outbox.PushResult({"b"}));
  std::this_thread::sleep_for(2 * kPatience);
  EXPECT_TRUE(reactor.outbox.WriteOverdue(kPatience));
  EXPECT_FALSE(reactor.outbox.WriteOverdue(std::chrono::hours(1)));
  reactor.Complete();  // the next one starts
  EXPECT_FALSE(reactor.outbox.WriteOverdue(std::chrono::hours(1)));
  std::this_thread::sleep_for(2 * kPatience);
  EXPECT_TRUE(reactor.outbox.WriteOverdue(kPatience));
  reactor.Complete();
  EXPECT_FALSE(reactor.outbox.WriteOverdue(kPatience));
}

TEST(ServerOutboxTest, OverdueOnlyWhenAnEndIsHeldUp) {
  Reactor reactor;
  EXPECT_TRUE(reactor.outbox.PushResult({"a"}));
  EXPECT_FALSE(reactor.outbox.Overdue(std::chrono::milliseconds(0)));
  reactor.outbox.Close(grpc::Status::OK);
  std::this_thread::sleep_for(std::chrono::milliseconds(2));
  EXPECT_TRUE(reactor.outbox.Overdue(std::chrono::milliseconds(1)));
  EXPECT_FALSE(reactor.outbox.Overdue(std::chrono::hours(1)));
  reactor.Complete();
  EXPECT_FALSE(reactor.outbox.Overdue(std::chrono::milliseconds(0)));
}

TEST(ServerOutboxTest, AMergeDepthJoinsAResultToTheNewestThatTakesIt) {
  std::vector<std::string> written;
  ServerOutbox<Note> outbox(
      {.messages = 2, .bytes = 100, .merge_depth = 8},
      [](Note& waiting, Note& next) {
        if (waiting.text[0] != next.text[0]) {
          return false;
        }
        waiting.text += next.text;
        return true;
      },
      [&](const Note* note) { written.push_back(note->text); }, [](const grpc::Status&) {});
  for (const char* text : {"x", "a1", "b1", "a2", "b2", "a3"}) {
    EXPECT_TRUE(outbox.PushResult({text})) << text;
  }
  EXPECT_FALSE(outbox.PushResult({"c"})) << "two wait already";
  for (int i = 0; i < 3; ++i) {
    outbox.OnWriteDone(true);
  }
  EXPECT_THAT(written, ElementsAre("x", "a1a2a3", "b1b2"));
}

TEST(ServerOutboxTest, APrefaceIsMadePieceByPieceAndGoesBeforeResults) {
  Reactor reactor;
  int made = 0;
  reactor.outbox.SetPrefaceSource([&](Note& next) {
    next.text = std::to_string(made);
    return ++made <= 3;
  });
  EXPECT_TRUE(reactor.outbox.PushResult({"r"}));
  EXPECT_EQ(made, 1) << "only what is written";
  for (int i = 0; i < 3; ++i) {
    reactor.Complete();
  }
  reactor.outbox.Close(grpc::Status::OK);
  reactor.Complete();
  EXPECT_THAT(reactor.written, ElementsAre("0", "1", "2", "r"));
  EXPECT_EQ(reactor.code, grpc::StatusCode::OK);
}

TEST(ServerOutboxTest, AnAbortOrALostPeerEndsThePrefaceThatIsMade) {
  for (const bool lost : {false, true}) {
    Reactor reactor;
    reactor.outbox.SetPrefaceSource([](Note& next) {
      next.text = "p";
      return true;
    });
    if (!lost) {
      reactor.outbox.Abort(grpc::Status::CANCELLED);
    }
    reactor.Complete(/*ok=*/!lost);
    EXPECT_THAT(reactor.written, ElementsAre("p"));
    EXPECT_EQ(reactor.finished, !lost);
  }
}

}  // namespace
}  // namespace arborist
