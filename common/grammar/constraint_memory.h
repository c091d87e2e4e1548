#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>

namespace arborist {

// Shared by the constraints of one process: what each may keep of states and masks is its part of the whole,
// so the more there are, the sooner each forgets (and computes anew). Thread-safe.
class ConstraintMemory {
 public:
  static constexpr size_t kDefaultBytes = size_t{512} << 20;
  static constexpr size_t kLeastShare = size_t{1} << 20;  // of one: without any it would do nothing else

  explicit ConstraintMemory(size_t bytes = kDefaultBytes) : bytes_(bytes) {}

  void Join() { constraints_.fetch_add(1, std::memory_order_relaxed); }
  void Leave() { constraints_.fetch_sub(1, std::memory_order_relaxed); }
  size_t share() const {
    const size_t constraints = std::max<size_t>(1, constraints_.load(std::memory_order_relaxed));
    return std::max(kLeastShare, bytes_ / constraints);
  }

 private:
  const size_t bytes_;
  std::atomic<size_t> constraints_{0};
};

}  // namespace arborist
