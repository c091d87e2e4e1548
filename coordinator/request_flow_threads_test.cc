// Everything that may reach a flow from its own thread, at once. The thread sanitizer runs this.
#include <gtest/gtest.h>

#include <atomic>
#include <mutex>
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
      worker.Post([&] { ++done; }, /*priority=*/0);
    }
  }
  EXPECT_EQ(done, 100);
}

TEST(WorkerTest, APointOfPriorityIsWorthASecondOfWaiting) {
  std::vector<int> order;
  {
    Worker worker;
    std::mutex gate;
    gate.lock();
    worker.Post([&] { const std::lock_guard wait(gate); }, /*priority=*/100);
    const Worker::Clock::time_point now = Worker::Clock::now();
    const auto post = [&](int name, int priority, int seconds_ago) {
      worker.Post([&order, name] { order.push_back(name); }, priority,
                  now - std::chrono::seconds(seconds_ago));
    };
    post(1, 0, 0);
    post(2, 5, 0);
    post(3, 0, 6);
    post(4, -5, 0);
    post(5, 0, 0);
    gate.unlock();
  }
  EXPECT_EQ(order, (std::vector<int>{3, 2, 1, 5, 4}));
}

}  // namespace
}  // namespace arborist::coordinator
