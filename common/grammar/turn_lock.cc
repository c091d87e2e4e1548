#include "common/grammar/turn_lock.h"

#include <thread>

namespace arborist {

void TurnLock::lock() {
  waiting_.fetch_add(1, std::memory_order_relaxed);
  mutex_.lock();
  turns_.fetch_add(1, std::memory_order_relaxed);
  waiting_.fetch_sub(1, std::memory_order_relaxed);
}

void TurnLock::LetOthersPass() {
  const int64_t last = turns_.load(std::memory_order_relaxed) + waiting_.load(std::memory_order_relaxed);
  mutex_.unlock();
  // A mutex goes to whoever is awake: taken again at once it would stay here.
  while (wanted() && turns_.load(std::memory_order_relaxed) < last) {
    std::this_thread::yield();
  }
  mutex_.lock();
}

}  // namespace arborist
