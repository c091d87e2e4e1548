#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>

namespace arborist::verifier {

// What is to be done, one item after another, on a thread of its own that begins with the first. Thread-safe.
template <typename Item>
class WorkQueue {
 public:
  // Called on the queue's thread with the queue's lock open. It may put items, even the one that it has; it
  // does not stop the queue.
  using Work = std::function<void(Item)>;

  explicit WorkQueue(Work work) : work_(std::move(work)) {}
  ~WorkQueue() { (void)Stop(); }

  // Behind those that wait. A queue that is stopped drops it.
  void Put(Item item) {
    const std::lock_guard lock(mutex_);
    if (stopping_) {
      return;
    }
    waiting_.push_back(std::move(item));
    if (!thread_.joinable()) {
      thread_ = std::thread([this] { Loop(); });
    }
    changed_.notify_one();
  }

  // Drops those that wait and of which `gone`, called with the queue's lock held, says so.
  template <typename Gone>
  void DropIf(const Gone& gone) {
    const std::lock_guard lock(mutex_);
    std::erase_if(waiting_, gone);
  }

  // That wait: the one that is being worked on is not among them.
  size_t size() {
    const std::lock_guard lock(mutex_);
    return waiting_.size();
  }

  // Work that is under way has returned, and none begins any more: what waited is returned, by the first
  // call.
  std::deque<Item> Stop() {
    std::deque<Item> left;
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
      left.swap(waiting_);
      changed_.notify_one();
    }
    if (thread_.joinable()) {
      thread_.join();
    }
    return left;
  }

 private:
  void Loop() {
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [this] { return stopping_ || !waiting_.empty(); });
      if (stopping_) {
        return;
      }
      Item item = std::move(waiting_.front());
      waiting_.pop_front();
      lock.unlock();
      work_(std::move(item));
      lock.lock();
    }
  }

  const Work work_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Item> waiting_;
  bool stopping_ = false;
  std::thread thread_;  // since the first item
};

}  // namespace arborist::verifier
