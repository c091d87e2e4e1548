#include "verifier/work_queue.h"

#include <gtest/gtest.h>

#include <future>
#include <memory>
#include <thread>
#include <vector>

namespace arborist::verifier {
namespace {

// Notes what is done, and can be held in the middle of one item.
class Notes {
 public:
  explicit Notes(int held = -1) : held_(held) {}
  void Do(int item) {
    done_.push_back(item);  // one thread, and read after Stop
    if (item == held_) {
      begun_.set_value();
      go_on_.get_future().wait();
    }
  }
  void AwaitHeld() { begun_.get_future().wait(); }
  void GoOn() { go_on_.set_value(); }
  const std::vector<int>& done() const { return done_; }

 private:
  const int held_;
  std::vector<int> done_;
  std::promise<void> begun_, go_on_;
};

TEST(WorkQueueTest, ItemsAreDoneInTheirOrderAndOnAnotherThread) {
  std::vector<int> done;
  std::promise<std::thread::id> last;
  WorkQueue<int> queue([&](int item) {
    done.push_back(item);
    if (item == 99) {
      last.set_value(std::this_thread::get_id());
    }
  });
  for (int i = 0; i < 100; ++i) {
    queue.Put(i);
  }
  EXPECT_NE(last.get_future().get(), std::this_thread::get_id());
  EXPECT_TRUE(queue.Stop().empty());
  ASSERT_EQ(done.size(), 100u);
  for (int i = 0; i < 100; ++i) {
    EXPECT_EQ(done[i], i);
  }
}

TEST(WorkQueueTest, WhatIsPutByTheWorkItselfComesBehindThoseThatWait) {
  Notes notes(/*held=*/1);
  std::promise<void> twice;
  WorkQueue<int> queue([&](int item) {
    notes.Do(item);
    if (item < 3) {
      queue.Put(item + 10);
    } else if (item == 12) {
      twice.set_value();
    }
  });
  queue.Put(1);
  notes.AwaitHeld();
  queue.Put(2);
  EXPECT_EQ(queue.size(), 1u);
  notes.GoOn();
  twice.get_future().wait();
  (void)queue.Stop();
  EXPECT_EQ(notes.done(), (std::vector<int>{1, 2, 11, 12}));
}

TEST(WorkQueueTest, WhatIsDroppedWhileItWaitsIsNotDone) {
  Notes notes(/*held=*/0);
  std::promise<void> last;
  WorkQueue<int> queue([&](int item) {
    notes.Do(item);
    if (item == 5) {
      last.set_value();
    }
  });
  for (int i = 0; i < 6; ++i) {
    queue.Put(i);
  }
  notes.AwaitHeld();
  queue.DropIf([](int item) { return item % 2 == 0; });
  EXPECT_EQ(queue.size(), 3u);
  notes.GoOn();
  last.get_future().wait();
  (void)queue.Stop();
  EXPECT_EQ(notes.done(), (std::vector<int>{0, 1, 3, 5}));
}

TEST(WorkQueueTest, StoppingAwaitsWhatIsUnderWayAndReturnsWhatWaitsAndDropsWhatComesLater) {
  Notes notes(/*held=*/0);
  WorkQueue<int> queue([&](int item) { notes.Do(item); });
  for (int i = 0; i < 3; ++i) {
    queue.Put(i);
  }
  notes.AwaitHeld();
  auto stopped = std::async(std::launch::async, [&] { return queue.Stop(); });
  EXPECT_EQ(stopped.wait_for(std::chrono::milliseconds(30)), std::future_status::timeout);
  notes.GoOn();
  EXPECT_EQ(stopped.get(), (std::deque<int>{1, 2}));
  queue.Put(4);
  EXPECT_EQ(queue.size(), 0u);
  EXPECT_TRUE(queue.Stop().empty());
  EXPECT_EQ(notes.done(), (std::vector<int>{0}));
}

TEST(WorkQueueTest, AnItemBelongsToItsWorkAlone) {
  std::promise<int64_t> owners;
  WorkQueue<std::shared_ptr<int>> queue(
      [&](const std::shared_ptr<int>& item) { owners.set_value(item.use_count()); });
  queue.Put(std::make_shared<int>(1));
  EXPECT_EQ(owners.get_future().get(), 1);
}

TEST(WorkQueueTest, OneThatNeverHadAnItemEndsWithoutAThread) {
  bool worked = false;
  {
    const WorkQueue<int> queue([&](int) { worked = true; });
  }
  EXPECT_FALSE(worked);
}

}  // namespace
}  // namespace arborist::verifier
