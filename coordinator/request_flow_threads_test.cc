// Everything that may reach a flow from its own thread, at once. The thread sanitizer runs this.
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "coordinator/testing/flow_fixture.h"
#include "coordinator/worker.h"

namespace arborist::coordinator {
namespace {

using testing::RequestFlowTest;

class RequestFlowThreadsTest : public RequestFlowTest {};

TEST_F(RequestFlowThreadsTest, RunsTicksAndACancelMayComeAtOnce) {
  for (int round = 0; round < 50; ++round) {
    router_ = testing::FakeRouter();
    sink_ = testing::RecordingSink();
    Begin(Mode::kTree);
    auto call = router_.drafter.calls.back();
    std::thread path([&] {
      for (int i = 0; i < size(); ++i) {
        call->listener->OnProgress();
        call->Send(script_, i, i + 1, i + 1 == size() ? FinishReason::kMaxTokens : FinishReason::kNone);
      }
      call->End(absl::OkStatus());
    });
    std::thread ticker([&] {
      for (int i = 0; i < 50; ++i) {
        flow_->Tick(absl::Now());
      }
    });
    if (round % 2 == 1) {
      flow_->Cancel(absl::CancelledError("client is gone"));
    }
    path.join();
    ticker.join();
    EXPECT_EQ(sink_.finished + sink_.failed, 1);
    EXPECT_TRUE(std::equal(sink_.tokens.begin(), sink_.tokens.end(), script_.begin()));
    if (sink_.finished == 1) {
      EXPECT_EQ(sink_.tokens, script_);
    }
  }
}

TEST(SerialTest, TasksOfManyThreadsRunOneAtATimeAndEachThreadsInOrder) {
  Serial serial;
  std::vector<std::pair<int, int>> seen;  // no lock of its own
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&, thread] {
      for (int i = 0; i < 500; ++i) {
        serial.Post([&seen, thread, i] { seen.emplace_back(thread, i); });
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  int next[4] = {};
  for (const auto& [thread, i] : seen) {
    EXPECT_EQ(i, next[thread]++);
  }
  EXPECT_EQ(seen.size(), 2000u);
}

TEST(SerialTest, ATaskMayPostAnother) {
  Serial serial;
  std::vector<int> seen;
  serial.Post([&] {
    serial.Post([&] { seen.push_back(2); });
    seen.push_back(1);
  });
  EXPECT_EQ(seen, (std::vector<int>{1, 2}));
}

TEST(WorkerTest, RunsWhatIsQueuedBeforeItEnds) {
  std::atomic<int> done{0};
  {
    Worker worker;
    for (int i = 0; i < 100; ++i) {
      worker.Post([&] { ++done; });
    }
  }
  EXPECT_EQ(done, 100);
}

}  // namespace
}  // namespace arborist::coordinator
