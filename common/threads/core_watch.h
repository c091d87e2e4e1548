#pragma once

#include <atomic>
#include <chrono>

namespace arborist {

// Notices when others want the core of a thread that looks for a change instead of sleeping until it comes. A
// look takes a microsecond or two; if much more has passed since the one before, others had the core, and who
// looks gets it back later than who sleeps and is woken (on a busy machine milliseconds later). So nobody
// should look for a while then. Thread-safe.
class CoreWatch {
 public:
  using Clock = std::chrono::steady_clock;

  void Looked(Clock::time_point before, Clock::time_point now) {
    if (now - before > kLost) {
      resting_until_.store(now + kRest, std::memory_order_relaxed);
    }
  }
  bool MayLook(Clock::time_point now) const { return now >= resting_until_.load(std::memory_order_relaxed); }

 private:
  static constexpr std::chrono::microseconds kLost{50};
  static constexpr std::chrono::milliseconds kRest{20};

  std::atomic<Clock::time_point> resting_until_{};
};

}  // namespace arborist
