#pragma once

#include <atomic>

namespace arborist::coordinator {

// How many requests run at once, with a bound. Thread-safe.
class Admission {
 public:
  explicit Admission(int most) : most_(most) {}

  // A true Enter is followed by one Leave.
  bool Enter() {
    if (running_.fetch_add(1, std::memory_order_relaxed) >= most_) {
      running_.fetch_sub(1, std::memory_order_relaxed);
      return false;
    }
    return true;
  }
  void Leave() { running_.fetch_sub(1, std::memory_order_relaxed); }
  int running() const { return running_.load(std::memory_order_relaxed); }

 private:
  const int most_;
  std::atomic<int> running_{0};
};

}  // namespace arborist::coordinator
