#pragma once

#include <cstdint>
#include <functional>
#include <memory>

namespace arborist {

// A fixed set of threads for data-parallel loops. Results must never depend on the number of threads: callers
// give each output element to exactly one index of the loop.
//
// One caller at a time (the owner's thread takes part as worker 0). Idle workers spin for some microseconds,
// then sleep on a futex, so a process that waits for its peer leaves its cores to it. A part that its worker
// has not started (asleep, or without a core) is run by the caller, so a busy machine costs little.
class ThreadPool {
 public:
  // threads >= 1, the calling thread included.
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const { return threads_; }

  // Calls body(begin, end, worker) for disjoint ranges that cover [0, count); returns when all are done.
  // Ranges hold at least `grain` indices (>= 1), so small loops run on the caller alone. `body` must not
  // throw or re-enter.
  template <typename Body>
  void ParallelFor(int64_t count, int64_t grain, const Body& body) {
    Run(
        count, grain,
        [](const void* b, int64_t begin, int64_t end, int worker) {
          (*static_cast<const Body*>(b))(begin, end, worker);
        },
        &body);
  }

 private:
  using RangeFunction = void (*)(const void* body, int64_t begin, int64_t end, int worker);
  void Run(int64_t count, int64_t grain, RangeFunction function, const void* body);

  struct State;
  int threads_;
  std::unique_ptr<State> state_;
};

// Where a kernel runs: the pool for the CPU backend, an opaque cudaStream_t for the CUDA one. The other
// member is null.
struct StreamView {
  ThreadPool* threads = nullptr;
  void* cuda_stream = nullptr;
};

}  // namespace arborist
