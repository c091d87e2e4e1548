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

// Returns once `word` is no longer `old`: spins, then sleeps until the writer notifies.
template <typename T>
void AwaitChange(const std::atomic<T>& word, T old) {
  for (int spin = 0; word.load(std::memory_order_acquire) == old; ++spin) {
    if (spin < kSpins) {
      Pause();
    } else {
      word.wait(old, std::memory_order_acquire);
    }
  }
}

// A worker's order book, on a cache line of its own: only the workers that a loop needs are called, so the
// others sleep on and never look at a loop that is not theirs.
struct alignas(64) Orders {
  std::atomic<uint32_t> calls{0};  // bumped once for every loop of this worker, and once to stop
};

}  // namespace

struct ThreadPool::State {
  explicit State(int threads) : orders(static_cast<size_t>(threads)) {}

  std::vector<Orders> orders;   // [threads]; the caller's is unused
  std::atomic<int> running{0};  // called workers that have not finished yet
  std::atomic<bool> stop{false};
  // The loop. Written before `calls` is bumped (release) and read after (acquire); written again only after
  // `running` was seen at 0, that is after every reader is done.
  int64_t count = 0;
  int parts = 0;
  RangeFunction function = nullptr;
  const void* body = nullptr;
  std::vector<std::thread> workers;

  void Call(int worker) {
    orders[static_cast<size_t>(worker)].calls.fetch_add(1, std::memory_order_release);
    orders[static_cast<size_t>(worker)].calls.notify_one();
  }

  void RunPart(int part) const { function(body, count * part / parts, count * (part + 1) / parts, part); }

  void WorkerLoop(int worker) {
    const std::atomic<uint32_t>& calls = orders[static_cast<size_t>(worker)].calls;
    for (uint32_t seen = 0;; ++seen) {  // one call at a time: the next comes only after this one is done
      AwaitChange(calls, seen);
      if (stop.load(std::memory_order_relaxed)) {
        return;
      }
      RunPart(worker);
      if (running.fetch_sub(1, std::memory_order_acq_rel) == 1) {
        running.notify_one();
      }
    }
  }
};

ThreadPool::ThreadPool(int threads) : threads_(threads) {
  Check(threads >= 1, "a pool has at least the calling thread");
  state_ = std::make_unique<State>(threads);
  for (int worker = 1; worker < threads; ++worker) {
    state_->workers.emplace_back([this, worker] { state_->WorkerLoop(worker); });
  }
}

ThreadPool::~ThreadPool() {
  state_->stop.store(true, std::memory_order_relaxed);
  for (int worker = 1; worker < threads_; ++worker) {
    state_->Call(worker);
  }
  for (std::thread& worker : state_->workers) {
    worker.join();
  }
}

void ThreadPool::Run(int64_t count, int64_t grain, RangeFunction function, const void* body) {
  Check(count >= 0 && grain >= 1, "a loop has count >= 0 and grain >= 1");
  const int parts = static_cast<int>(std::min<int64_t>(threads_, count / grain));
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
  state_->running.store(parts - 1, std::memory_order_relaxed);
  for (int worker = 1; worker < parts; ++worker) {
    state_->Call(worker);
  }
  state_->RunPart(0);
  for (int left = 0; (left = state_->running.load(std::memory_order_acquire)) != 0;) {
    AwaitChange(state_->running, left);
  }
}

}  // namespace arborist
