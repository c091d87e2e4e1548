#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>

namespace arborist {

// A mutex that a long computation lends to others between its parts; short calls just take it. For
// std::unique_lock and its kin.
class TurnLock {
 public:
  void lock();
  void unlock() { mutex_.unlock(); }

  // Whether others wait for it.
  bool wanted() const { return waiting_.load(std::memory_order_relaxed) > 0; }
  // Its holder has it again when as many turns are over as calls waited, whoever took them: those who come
  // back again and again do not keep it away for ever.
  void LetOthersPass();

 private:
  std::mutex mutex_;
  std::atomic<int64_t> waiting_{0};
  std::atomic<int64_t> turns_{0};  // that have begun
};

}  // namespace arborist
