#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <thread>

namespace arborist::coordinator {

// One thread for work that is too long for a gRPC reaction: encoding a large text. What is queued is bounded
// by the callers' own admission. Larger priority first, but a point of it is worth one second of waiting, as
// in the verifier's queue, so none waits for ever; equal ones in the order they came.
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

  using Clock = std::chrono::steady_clock;

  void Post(std::function<void()> task, int priority, Clock::time_point came = Clock::now()) {
    const std::lock_guard lock(mutex_);
    tasks_.emplace(came - std::chrono::seconds(priority), std::move(task));
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
        task = std::move(tasks_.begin()->second);
        tasks_.erase(tasks_.begin());
      }
      task();
    }
  }

  std::mutex mutex_;  // guards tasks_ and stopping_
  std::condition_variable woken_;
  std::multimap<Clock::time_point, std::function<void()>>
      tasks_;  // by when one of priority 0 would have come
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace arborist::coordinator
