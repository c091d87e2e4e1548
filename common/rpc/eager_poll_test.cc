#include "common/rpc/eager_poll.h"

#include <gtest/gtest.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
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

// How often this thread was taken from its core, or left it to others, without going to sleep.
int64_t Yielded() {
  rusage usage{};
  getrusage(RUSAGE_THREAD, &usage);
  return usage.ru_nivcsw;
}

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
  struct Cost {
    double cpu_seconds = 0;
    int64_t yielded = 0;
  };
  const auto wait_after_a_message = [&](int longest_ms) {
    LookForMessages(milliseconds(longest_ms));
    std::this_thread::sleep_for(milliseconds(25));  // a rest from the last time is over
    Send();
    EXPECT_EQ(Wait(-1), 1);
    Receive();
    const double cpu_before = CpuSeconds();
    const int64_t yielded_before = Yielded();
    EXPECT_EQ(Wait(10), 0);
    return Cost{CpuSeconds() - cpu_before, Yielded() - yielded_before};
  };
  // A wait that sleeps takes some tens of microseconds of the core. One that looks takes it all, or leaves it
  // to others at the first look.
  int tries = 0;
  for (Cost cost; cost.cpu_seconds < 0.002 && cost.yielded == 0; cost = wait_after_a_message(1000)) {
    ASSERT_LT(++tries, 20);
  }
  EXPECT_LT(wait_after_a_message(0).cpu_seconds, 0.002);
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
