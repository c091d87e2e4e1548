#include "common/threads/thread_pool.h"

#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

#include "common/base/check.h"
#include "common/threads/pause.h"

namespace arborist {
namespace {

// About 20 microseconds: longer than the gaps between the loops of one step, shorter than a wait for the peer
// process.
constexpr int kSpins = 400;

// Returns once `word` is no longer `old`: spins, then sleeps until the writer notifies.
void AwaitChange(const std::atomic<uint32_t>& word, uint32_t old) {
  for (int spin = 0; word.load(std::memory_order_acquire) == old; ++spin) {
    if (spin < kSpins) {
      Pause();
    } else {
      word.wait(old, std::memory_order_acquire);
    }
  }
}

// What a worker is asked to do, on a cache line of its own.
constexpr uint32_t kIdle = 0;
constexpr uint32_t kCalled = 1;   // by the caller: a part waits
constexpr uint32_t kStarted = 2;  // by the worker: it runs the part
constexpr uint32_t kStop = 3;
struct alignas(64) Order {
  std::atomic<uint32_t> word{kIdle};
};

}  // namespace

struct ThreadPool::State {
  explicit State(int threads) : orders(static_cast<size_t>(threads)) {}

  std::vector<Order> orders;  // [threads]; the caller's is unused
  // The loop. Written before a word becomes kCalled (release); read by workers whose exchange to kStarted
  // succeeded (acquire); written again only after each of those is kIdle.
  int64_t count = 0;
  int parts = 0;
  RangeFunction function = nullptr;
  const void* body = nullptr;
  std::vector<std::thread> workers;

  std::atomic<uint32_t>& Word(int worker) { return orders[static_cast<size_t>(worker)].word; }

  void Tell(int worker, uint32_t what) {
    // Sequentially consistent, for libstdc++'s notify_one looks first whether anybody waits: a processor may
    // let that load pass a release store, and whoever goes to sleep in between would never be woken.
    Word(worker).store(what, std::memory_order_seq_cst);
    Word(worker).notify_one();
  }

  // Takes a called part; only one of worker and caller can.
  bool Take(int part, uint32_t next) {
    uint32_t called = kCalled;
    return Word(part).compare_exchange_strong(called, next, std::memory_order_acquire,
                                              std::memory_order_relaxed);
  }

  void RunPart(int part) const { function(body, count * part / parts, count * (part + 1) / parts, part); }

  void WorkerLoop(int worker) {
    std::atomic<uint32_t>& word = Word(worker);
    while (true) {
      AwaitChange(word, kIdle);
      if (word.load(std::memory_order_relaxed) == kStop) {
        return;
      }
      if (Take(worker, kStarted)) {
        RunPart(worker);
        Tell(worker, kIdle);
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
  for (int worker = 1; worker < threads_; ++worker) {
    state_->Tell(worker, kStop);
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
  for (int worker = 1; worker < parts; ++worker) {
    state_->Tell(worker, kCalled);
  }
  state_->RunPart(0);
  for (int part = 1; part < parts; ++part) {
    if (state_->Take(part, kIdle)) {
      state_->RunPart(part);
    }
  }
  for (int worker = 1; worker < parts; ++worker) {
    AwaitChange(state_->Word(worker), kStarted);
  }
}

}  // namespace arborist
