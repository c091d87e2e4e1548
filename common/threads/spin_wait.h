#pragma once

#include <atomic>
#include <chrono>
#include <utility>

#include "common/threads/core_watch.h"
#include "common/threads/pause.h"

namespace arborist {

// Looking for a change before sleeping until it comes. To be woken takes tens of microseconds where cores
// have gone to sleep, and some of the one who wakes; to look burns a core, so it ends after a while, and
// where many threads wait none looks: what one gains the others lose.
class SpinWait {
 public:
  // longest = 0: nobody looks.
  SpinWait(std::chrono::microseconds longest, int most_waiters)
      : longest_(longest), most_waiters_(most_waiters) {}

  // A thread that waits here now and then, for as long as it may.
  void Join() { waiters_.fetch_add(1, std::memory_order_relaxed); }
  void Leave() { waiters_.fetch_sub(1, std::memory_order_relaxed); }

  // Returns when changed() is true or looking does not pay; the caller then sleeps, with its own condition.
  // `changed` reads atomics only. Thread-safe.
  template <typename Changed>
  void Until(Changed changed) {
    if (longest_.count() == 0) {
      return;
    }
    auto now = CoreWatch::Clock::now();
    const auto end = now + longest_;
    while (waiters_.load(std::memory_order_relaxed) <= most_waiters_ && !changed() && now < end &&
           core_.MayLook(now)) {
      PauseLonger();
      const auto before = std::exchange(now, CoreWatch::Clock::now());
      core_.Looked(before, now);
    }
  }

 private:
  // Those it waits for may run on the other half of its core.
  static void PauseLonger() {
    for (int i = 0; i < 4; ++i) {
      Pause();
    }
  }

  const std::chrono::microseconds longest_;
  const int most_waiters_;
  std::atomic<int> waiters_{0};
  CoreWatch core_;
};

}  // namespace arborist
