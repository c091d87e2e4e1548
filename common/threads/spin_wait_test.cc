#include "common/threads/spin_wait.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>

namespace arborist {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::microseconds kLong{60'000'000};

TEST(SpinWaitTest, LooksUntilTheChangeComesAndNoLonger) {
  // On a busy machine it may end sooner, and not begin for some milliseconds.
  const auto finds_it = [] {
    SpinWait spin(kLong, 1);
    std::atomic<bool> changed{false};
    std::thread changer([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
      changed = true;
    });
    int looks = 0;
    bool found = false;
    spin.Until([&] {
      ++looks;
      EXPECT_FALSE(found) << "a look after the change";
      found = changed.load();
      return found;
    });
    changer.join();
    return found && looks > 100;
  };
  int tries = 0;
  while (!finds_it()) {
    ASSERT_LT(++tries, 1000);
  }
}

TEST(SpinWaitTest, WhereOthersTookTheCoreNobodyLooksForAWhile) {
  SpinWait spin(std::chrono::milliseconds(200), 1);
  int looks = 0;
  const auto lose_the_core = [&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    ++looks;
    return false;
  };
  spin.Until(lose_the_core);
  EXPECT_LE(looks, 2);  // the last one before it goes to sleep
  spin.Until(lose_the_core);
  EXPECT_LE(looks, 4);  // 3, unless the rest is over on a busy machine
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
  int looks = 0;
  const auto look = [&] { return ++looks > 1; };
  spin.Until(look);
  EXPECT_EQ(looks, 0);
  spin.Leave();
  spin.Until(look);
  EXPECT_GE(looks, 1);
}

}  // namespace
}  // namespace arborist
