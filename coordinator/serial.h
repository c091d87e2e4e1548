#pragma once

#include <deque>
#include <functional>
#include <mutex>

namespace arborist::coordinator {

// Runs tasks one at a time in the order they came, on the thread that finds the queue idle. No lock is held
// while a task runs, so a task may post, start calls and cancel them.
class Serial {
 public:
  void Post(std::function<void()> task) {
    {
      const std::lock_guard lock(mutex_);
      tasks_.push_back(std::move(task));
      if (running_) {
        return;
      }
      running_ = true;
    }
    while (true) {
      std::function<void()> next;
      {
        const std::lock_guard lock(mutex_);
        if (tasks_.empty()) {
          running_ = false;
          return;
        }
        next = std::move(tasks_.front());
        tasks_.pop_front();
      }
      next();
    }
  }

 private:
  std::mutex mutex_;
  std::deque<std::function<void()>> tasks_;
  bool running_ = false;
};

}  // namespace arborist::coordinator
