#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace arborist::drafter {

// Threads that run one sequence's loop each; started when needed, kept, at most `capacity`. A task beyond
// that waits for a free one.
class WorkerPool {
 public:
  explicit WorkerPool(size_t capacity) : capacity_(capacity) {}
  // Waits for the tasks that run; those that wait are run too.
  ~WorkerPool();

  void Run(std::function<void()> task);

 private:
  void Work();

  const size_t capacity_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> tasks_;
  size_t idle_ = 0;
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace arborist::drafter
