#include "common/rpc/eager_poll.h"

#include <gtest/gtest.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <thread>

#include "common/threads/testing/cpu_seconds.h"

namespace arborist {
namespace {

using Clock = std::chrono::steady_clock;
using arborist::testing::CpuSeconds;
using std::chrono::milliseconds;

class EagerPollTest : public ::testing::Test {
 protected:
  EagerPollTest() {
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.u64 = 42;
    epoll_ctl(epoll_, EPOLL_CTL_ADD, event_, &event);
  }
  ~EagerPollTest() override {
    LookForMessages(std::chrono::microseconds(0));
    close(event_);
    close(epoll_);
  }

  void Send() {
    const uint64_t one = 1;
    ASSERT_EQ(write(event_, &one, sizeof(one)), static_cast<ssize_t>(sizeof(one)));
  }
  void Receive() {
    uint64_t count = 0;
    ASSERT_EQ(read(event_, &count, sizeof(count)), static_cast<ssize_t>(sizeof(count)));
  }
  // Events found.
  int Wait(int timeout_ms) {
    const int found = epoll_wait(epoll_, events_, 4, timeout_ms);
    EXPECT_TRUE(found != 1 || events_[0].data.u64 == 42);
    return found;
  }

  const int epoll_ = epoll_create1(0);
  const int event_ = eventfd(0, 0);
  epoll_event events_[4] = {};
};

TEST_F(EagerPollTest, FindsWhatIsThereAndWhatComes) {
  for (const int longest_ms : {0, 1, 1000}) {
    LookForMessages(milliseconds(longest_ms));
    Send();
    EXPECT_EQ(Wait(-1), 1);
    EXPECT_EQ(Wait(0), 1);
    Receive();
    EXPECT_EQ(Wait(0), 0);
    std::thread sender([this] {
      std::this_thread::sleep_for(milliseconds(10));
      Send();
    });
    EXPECT_EQ(Wait(-1), 1);
    sender.join();
    Receive();
  }
}

TEST_F(EagerPollTest, KeepsToTheTimeout) {
  for (const int longest_ms : {0, 10, 1000}) {
    LookForMessages(milliseconds(longest_ms));
    Send();
    EXPECT_EQ(Wait(-1), 1);
    Receive();
    const auto begin = Clock::now();
    EXPECT_EQ(Wait(40), 0);
    EXPECT_GE(Clock::now() - begin, milliseconds(39)) << longest_ms;
    EXPECT_LT(Clock::now() - begin, milliseconds(900)) << longest_ms;
  }
}

TEST_F(EagerPollTest, LooksAgainAndAgainAfterAMessage) {
  // A wait that sleeps takes some tens of microseconds of the core. On a busy machine one that looks ends
  // early, and none begins for some milliseconds.
  const auto looks = [&](int longest_ms) {
    LookForMessages(milliseconds(longest_ms));
    std::this_thread::sleep_for(milliseconds(25));
    Send();
    EXPECT_EQ(Wait(-1), 1);
    Receive();
    const double before = CpuSeconds();
    EXPECT_EQ(Wait(10), 0);
    return CpuSeconds() - before > 0.002;
  };
  int tries = 0;
  while (!looks(1000)) {
    ASSERT_LT(++tries, 1000);
  }
  EXPECT_FALSE(looks(0));
}

TEST_F(EagerPollTest, SleepsWhenNothingHasComeForLong) {
  LookForMessages(milliseconds(40));
  Send();
  EXPECT_EQ(Wait(-1), 1);
  Receive();
  EXPECT_EQ(Wait(60), 0);
  const double before = CpuSeconds();
  EXPECT_EQ(Wait(200), 0);
  EXPECT_LT(CpuSeconds() - before, 0.02);
}

}  // namespace
}  // namespace arborist
