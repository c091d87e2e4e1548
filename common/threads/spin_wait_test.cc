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
  while (!changed.load()) {  // it may end sooner on a busy machine
    spin.Until([&] { return changed.load(); });
  }
  changer.join();
}

TEST(SpinWaitTest, LooksNoLongerThanItMay) {
  SpinWait spin(std::chrono::microseconds(2000), 1);
  // On a busy machine it may end sooner, and not begin for some milliseconds.
  const auto looks_to_its_end = [&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(25));
    const auto begin = Clock::now();
    spin.Until([] { return false; });
    return Clock::now() - begin >= std::chrono::microseconds(2000);
  };
  int tries = 0;
  while (!looks_to_its_end()) {
    ASSERT_LT(++tries, 1000);
  }
}

TEST(CoreWatchTest, AfterALongPauseNobodyLooksForAWhile) {
  CoreWatch core;
  const auto now = Clock::now();
  core.Looked(now - std::chrono::microseconds(3), now);
  EXPECT_TRUE(core.MayLook(now));
  core.Looked(now - std::chrono::milliseconds(3), now);
  EXPECT_FALSE(core.MayLook(now));
  EXPECT_FALSE(core.MayLook(now + std::chrono::milliseconds(10)));
  EXPECT_TRUE(core.MayLook(now + std::chrono::milliseconds(21)));
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
