#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

namespace arborist::coordinator {

// One thread for work that is too long for a gRPC reaction: encoding a large text. What is queued is bounded
// by the callers' own admission.
class Worker {
 public:
  Worker() : thread_([this] { Loop(); }) {}
  // Runs what is queued, then ends.
  ~Worker() {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    woken_.notify_one();
    thread_.join();
  }

  void Post(std::function<void()> task) {
    const std::lock_guard lock(mutex_);
    tasks_.push_back(std::move(task));
    woken_.notify_one();
  }

 private:
  void Loop() {
    while (true) {
      std::function<void()> task;
      {
        std::unique_lock lock(mutex_);
        woken_.wait(lock, [this] { return stopping_ || !tasks_.empty(); });
        if (tasks_.empty()) {
          return;
        }
        task = std::move(tasks_.front());
        tasks_.pop_front();
      }
      task();
    }
  }

  std::mutex mutex_;  // guards tasks_ and stopping_
  std::condition_variable woken_;
  std::deque<std::function<void()>> tasks_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace arborist::coordinator
