#include "drafter/draft_queue.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace arborist::drafter {
namespace {

// Contexts that a process is likely to have at once: none of them allocates here.
constexpr size_t kUsual = 256;

}  // namespace

DraftQueue::Seat::Seat(DraftQueue& queue) : queue_(queue) {
  const std::lock_guard lock(queue_.mutex_);
  queue_.seats_.push_back(this);
}

DraftQueue::Seat::~Seat() {
  const std::lock_guard lock(queue_.mutex_);
  std::erase(queue_.seats_, this);
}

DraftQueue::DraftQueue(DraftRound& round, GatherRule rule,
                       std::function<void(const absl::Status&)> on_device_failure)
    : round_(round),
      rule_(rule),
      spin_(rule.patience, /*most_waiters=*/std::numeric_limits<int>::max()),
      on_device_failure_(std::move(on_device_failure)) {
  seats_.reserve(kUsual);
  waiting_.reserve(kUsual);
  running_.reserve(round.max_streams());
  requests_.reserve(round.max_streams());
  trees_.reserve(round.max_streams());
}

// A round is started by one of those who wait: by the one whose arrival lets it start, or by the first, which
// watches the time meanwhile. A thread that neither runs nor watches sleeps until its tree is there or it is
// the first of a free device.
absl::StatusOr<TokenTree> DraftQueue::Draft(const DraftRequest& request, Seat& seat) {
  Waiting me{.request = &request, .since = Clock::now()};
  std::unique_lock<std::mutex> lock(mutex_);
  seat.presence_.Drafts(me.since);
  waiting_.push_back(&me);
  arrivals_.fetch_add(1, std::memory_order_relaxed);
  while (!me.done) {
    if (busy_ || turns_wanted_ > 0 || (waiting_.front() != &me && !Starts())) {
      me.woken.wait(lock);
    } else if (Starts()) {
      RunRound(lock);
    } else {
      // The time is too short for a sleep, unless others want the core.
      const uint64_t before = arrivals_.load(std::memory_order_relaxed);
      const Clock::time_point end = me.since + rule_.patience;
      const auto goes_on = [&] {
        return arrivals_.load(std::memory_order_relaxed) != before || Clock::now() >= end;
      };
      lock.unlock();
      spin_.Until(goes_on);
      lock.lock();
      if (!goes_on()) {
        me.woken.wait_until(lock, end);
      }
    }
  }
  if (!me.status.ok()) {
    return me.status;
  }
  return std::move(me.tree);
}

bool DraftQueue::Starts() const {
  const Clock::time_point now = Clock::now();
  return rule_.Starts(static_cast<int>(waiting_.size()), Drafting(now),
                      static_cast<int>(round_.max_streams()), now - waiting_.front()->since);
}

int DraftQueue::Drafting(Clock::time_point now) const {
  return static_cast<int>(std::count_if(seats_.begin(), seats_.end(),
                                        [&](const Seat* seat) { return seat->presence_.IsThere(now); }));
}

void DraftQueue::RunRound(std::unique_lock<std::mutex>& lock) {
  const size_t count = std::min<size_t>(waiting_.size(), round_.max_streams());
  running_.assign(waiting_.begin(), waiting_.begin() + count);
  waiting_.erase(waiting_.begin(), waiting_.begin() + count);
  requests_.clear();
  trees_.clear();
  for (Waiting* one : running_) {
    requests_.push_back(one->request);
    trees_.push_back(&one->tree);
  }
  busy_ = true;
  lock.unlock();
  const absl::Status status = round_.Run(requests_, trees_);
  LookAtDevice(status);
  lock.lock();
  for (Waiting* one : running_) {
    one->status = status;
    one->done = true;
    one->woken.notify_one();
  }
  Release();
}

// One thread is woken that may go on; when it is done, or finds the device taken, the next release wakes
// another.
void DraftQueue::Release() {
  busy_ = false;
  arrivals_.fetch_add(1, std::memory_order_relaxed);
  if (turns_wanted_ > 0) {
    turn_.notify_one();
  } else if (!waiting_.empty()) {
    waiting_.front()->woken.notify_one();
  }
}

void DraftQueue::LookAtDevice(const absl::Status& status) {
  if (!status.ok() && on_device_failure_ != nullptr && !round_.device().Synchronize().ok()) {
    on_device_failure_(status);
  }
}

absl::Status DraftQueue::InTurn(absl::FunctionRef<absl::Status()> work) {
  std::unique_lock<std::mutex> lock(mutex_);
  ++turns_wanted_;
  turn_.wait(lock, [this] { return !busy_; });
  --turns_wanted_;
  busy_ = true;
  lock.unlock();
  const absl::Status status = work();
  LookAtDevice(status);
  lock.lock();
  Release();
  return status;
}

}  // namespace arborist::drafter
