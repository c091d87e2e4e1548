#pragma once

#include <atomic>

namespace arborist::coordinator {

// How many answers are made at once, with a bound: a request has `n` of them. Thread-safe.
class Admission {
 public:
  explicit Admission(int most) : most_(most) {}

  // All of them or none. A true Enter is followed by one Leave of as many.
  bool Enter(int answers) {
    if (running_.fetch_add(answers, std::memory_order_relaxed) + answers > most_) {
      running_.fetch_sub(answers, std::memory_order_relaxed);
      return false;
    }
    return true;
  }
  void Leave(int answers) { running_.fetch_sub(answers, std::memory_order_relaxed); }
  int running() const { return running_.load(std::memory_order_relaxed); }

 private:
  const int most_;
  std::atomic<int> running_{0};
};

}  // namespace arborist::coordinator
