#pragma once

#include <atomic>
#include <chrono>

namespace arborist {

// Looking for a change before sleeping until it comes. To be woken takes tens of microseconds where cores
// have gone to sleep, and some of the one who wakes; to look burns a core, so it ends after a while, and only
// so many threads look at a time.
class SpinWait {
 public:
  // longest = 0: nobody looks.
  SpinWait(std::chrono::microseconds longest, int most_threads)
      : longest_(longest), most_threads_(most_threads) {}

  // Returns when changed() is true or looking no longer pays; the caller then sleeps, with its own condition.
  // `changed` reads atomics only. Thread-safe.
  template <typename Changed>
  void Until(Changed changed) {
    if (longest_.count() == 0 || changed()) {
      return;
    }
    if (threads_.fetch_add(1, std::memory_order_relaxed) < most_threads_) {
      const auto end = std::chrono::steady_clock::now() + longest_;
      while (!changed() && std::chrono::steady_clock::now() < end) {
      }
    }
    threads_.fetch_sub(1, std::memory_order_relaxed);
  }

 private:
  const std::chrono::microseconds longest_;
  const int most_threads_;
  std::atomic<int> threads_{0};
};

}  // namespace arborist
