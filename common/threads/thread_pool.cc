#include "common/threads/thread_pool.h"

#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "common/base/check.h"

namespace arborist {
namespace {

// About 20 microseconds: longer than the gaps between the loops of one step, shorter than a wait for the peer
// process.
constexpr int kSpins = 400;

void Pause() {
#if defined(__x86_64__)
  _mm_pause();
#endif
}

}  // namespace

struct ThreadPool::State {
  std::atomic<uint32_t> generation{0};  // bumped once for every loop; workers wait on it
  std::atomic<int> running{0};          // workers that have not finished the loop yet
  std::atomic<bool> stop{false};
  int64_t count = 0;
  int parts = 0;
  RangeFunction function = nullptr;
  const void* body = nullptr;
  std::vector<std::thread> workers;

  void RunPart(int part) {
    const int64_t begin = count * part / parts;
    const int64_t end = count * (part + 1) / parts;
    if (begin < end) {
      function(body, begin, end, part);
    }
  }

  void WorkerLoop(int worker) {
    uint32_t seen = 0;
    while (true) {
      for (int spin = 0; generation.load(std::memory_order_acquire) == seen; ++spin) {
        if (spin < kSpins) {
          Pause();
        } else {
          generation.wait(seen, std::memory_order_acquire);
        }
      }
      ++seen;  // one generation at a time: the next loop starts only after every worker has left this one
      if (stop.load(std::memory_order_relaxed)) {
        return;
      }
      if (worker < parts) {
        RunPart(worker);
      }
      if (running.fetch_sub(1, std::memory_order_acq_rel) == 1) {
        running.notify_one();
      }
    }
  }
};

ThreadPool::ThreadPool(int threads) : threads_(threads), state_(std::make_unique<State>()) {
  Check(threads >= 1, "a pool has at least the calling thread");
  for (int worker = 1; worker < threads; ++worker) {
    state_->workers.emplace_back([this, worker] { state_->WorkerLoop(worker); });
  }
}

ThreadPool::~ThreadPool() {
  state_->stop.store(true, std::memory_order_relaxed);
  state_->generation.fetch_add(1, std::memory_order_release);
  state_->generation.notify_all();
  for (std::thread& worker : state_->workers) {
    worker.join();
  }
}

void ThreadPool::Run(int64_t count, int64_t grain, RangeFunction function, const void* body) {
  Check(count >= 0 && grain >= 1, "a loop has count >= 0 and grain >= 1");
  const int parts = static_cast<int>(std::min<int64_t>(threads_, (count + grain - 1) / grain));
  if (parts <= 1) {
    if (count > 0) {
      function(body, 0, count, 0);
    }
    return;
  }
  state_->count = count;
  state_->parts = parts;
  state_->function = function;
  state_->body = body;
  state_->running.store(threads_ - 1, std::memory_order_relaxed);
  state_->generation.fetch_add(1, std::memory_order_release);
  state_->generation.notify_all();
  state_->RunPart(0);
  for (int spin = 0, left = 0; (left = state_->running.load(std::memory_order_acquire)) != 0; ++spin) {
    if (spin < kSpins) {
      Pause();
    } else {
      state_->running.wait(left, std::memory_order_acquire);
    }
  }
}

}  // namespace arborist
