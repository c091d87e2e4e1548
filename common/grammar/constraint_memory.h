#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>

namespace arborist {

// Shared by the constraints of one process, for both kinds of memory that they take. What they were compiled
// to (grammars, forbidden strings) stays for as long as they live: within a total, beyond which no more are
// made. What each may keep of states and masks is its part of the whole, so the more there are, the sooner
// each forgets (and computes anew). Thread-safe.
class ConstraintMemory {
 public:
  static constexpr size_t kDefaultBytes = size_t{512} << 20;
  static constexpr size_t kDefaultCompiledBytes = size_t{512} << 20;
  static constexpr size_t kLeastShare = size_t{1} << 20;  // of one: without any it would do nothing else

  explicit ConstraintMemory(size_t bytes = kDefaultBytes, size_t compiled_bytes = kDefaultCompiledBytes)
      : bytes_(bytes), compiled_bytes_(compiled_bytes) {}

  // A constraint that was compiled to so many bytes. False: there is no room for it.
  bool Join(size_t compiled) {
    if (compiled_.fetch_add(compiled, std::memory_order_relaxed) + compiled > compiled_bytes_) {
      compiled_.fetch_sub(compiled, std::memory_order_relaxed);
      return false;
    }
    constraints_.fetch_add(1, std::memory_order_relaxed);
    return true;
  }
  void Leave(size_t compiled) {
    compiled_.fetch_sub(compiled, std::memory_order_relaxed);
    constraints_.fetch_sub(1, std::memory_order_relaxed);
  }
  size_t share() const {
    const size_t constraints = std::max<size_t>(1, constraints_.load(std::memory_order_relaxed));
    return std::max(kLeastShare, bytes_ / constraints);
  }
  size_t compiled() const { return compiled_.load(std::memory_order_relaxed); }

 private:
  const size_t bytes_;
  const size_t compiled_bytes_;
  std::atomic<size_t> constraints_{0};
  std::atomic<size_t> compiled_{0};
};

}  // namespace arborist
