#include "common/threads/spin_wait.h"

#include <gtest/gtest.h>

#include <thread>
#include <utility>

namespace arborist {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::microseconds kLong{60'000'000};

TEST(SpinWaitTest, ReturnsWhenTheChangeComes) {
  SpinWait spin(kLong, 1);
  std::atomic<bool> changed{false};
  std::thread changer([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    changed = true;
  });
  spin.Until([&] { return changed.load(); });
  EXPECT_TRUE(changed.load());
  changer.join();
}

TEST(SpinWaitTest, LooksNoLongerThanItMay) {
  SpinWait spin(std::chrono::microseconds(2000), 1);
  const auto begin = Clock::now();
  spin.Until([] { return false; });
  EXPECT_GE(Clock::now() - begin, std::chrono::microseconds(2000));
}

TEST(SpinWaitTest, WithoutTimeNobodyLooks) {
  SpinWait spin(std::chrono::microseconds(0), 1);
  int looks = 0;
  spin.Until([&] { return ++looks > 1000; });
  EXPECT_EQ(looks, 0);
}

TEST(SpinWaitTest, WhereOneTooManyWaitsNobodyLooks) {
  SpinWait spin(kLong, 1);
  spin.Join();
  spin.Join();
  spin.Until([] { return false; });  // returns at once
  spin.Leave();
  bool looked = false;
  spin.Until([&] { return std::exchange(looked, true); });
  EXPECT_TRUE(looked);
}

}  // namespace
}  // namespace arborist
