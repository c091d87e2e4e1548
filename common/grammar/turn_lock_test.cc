#include "common/grammar/turn_lock.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <mutex>
#include <thread>
#include <vector>

namespace arborist {
namespace {

using std::chrono::milliseconds;

TEST(TurnLockTest, AShortCallThatWaitsPassesALongComputation) {
  TurnLock lock;
  std::atomic<bool> passed{false};
  lock.lock();
  EXPECT_FALSE(lock.wanted());
  std::thread other([&] {
    const std::lock_guard turn(lock);
    passed = true;
  });
  while (!lock.wanted()) {
    std::this_thread::yield();
  }
  EXPECT_FALSE(passed);
  lock.LetOthersPass();
  EXPECT_TRUE(passed);
  EXPECT_FALSE(lock.wanted());
  lock.unlock();
  other.join();
}

TEST(TurnLockTest, OthersThatComeAgainAndAgainDoNotKeepItForEver) {
  TurnLock lock;
  std::atomic<bool> stop{false}, late{false}, back{false};
  // While one of them has it, all others wait: it is always wanted.
  std::vector<std::thread> others;
  lock.lock();
  for (int i = 0; i < 4; ++i) {
    others.emplace_back([&] {
      while (!stop) {
        {
          const std::lock_guard turn(lock);
          std::this_thread::sleep_for(milliseconds(1));
        }
        std::this_thread::sleep_for(std::chrono::microseconds(50));
      }
    });
  }
  std::thread watch([&] {
    for (int i = 0; i < 20000 && !back; ++i) {
      std::this_thread::sleep_for(milliseconds(1));
    }
    late = !back;
    stop = true;
  });
  for (int i = 0; i < 10; ++i) {
    while (!lock.wanted() && !stop) {
      std::this_thread::yield();
    }
    lock.LetOthersPass();
  }
  back = true;
  watch.join();
  EXPECT_FALSE(late) << "it came back only when the others had gone";
  lock.unlock();
  for (std::thread& other : others) {
    other.join();
  }
}

}  // namespace
}  // namespace arborist
