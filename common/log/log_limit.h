#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <optional>
#include <utility>

namespace arborist {

// Bounds how many lines of a kind are written: `burst` at once, `per_second` for ever. Thread-safe.
class LogLimit {
 public:
  using Clock = std::chrono::steady_clock;

  LogLimit(double per_second, double burst) : per_second_(per_second), burst_(burst), left_(burst) {}

  // How many lines were left out since the last one that was written, if this one is to be written.
  std::optional<int64_t> Allow(Clock::time_point now = Clock::now()) {
    const std::lock_guard lock(mutex_);
    if (last_.has_value()) {
      const double passed = std::chrono::duration<double>(now - *last_).count();
      left_ = std::min(burst_, left_ + std::max(0.0, passed) * per_second_);
    }
    last_ = now;
    if (left_ < 1) {
      ++left_out_;
      return std::nullopt;
    }
    left_ -= 1;
    return std::exchange(left_out_, 0);
  }

 private:
  const double per_second_;
  const double burst_;
  std::mutex mutex_;
  double left_;  // guarded by mutex_, as what follows
  std::optional<Clock::time_point> last_;
  int64_t left_out_ = 0;
};

}  // namespace arborist
