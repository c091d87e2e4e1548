#include "drafter/draft_queue.h"

#include <algorithm>
#include <utility>

namespace arborist::drafter {
namespace {

// Contexts that a process is likely to have at once: none of them allocates here.
constexpr size_t kUsual = 256;

}  // namespace

DraftQueue::DraftQueue(DraftRound& round, std::function<void(const absl::Status&)> on_device_failure)
    : round_(round), on_device_failure_(std::move(on_device_failure)) {
  waiting_.reserve(kUsual);
  running_.reserve(round.max_streams());
  requests_.reserve(round.max_streams());
  trees_.reserve(round.max_streams());
}

absl::StatusOr<TokenTree> DraftQueue::Draft(const DraftRequest& request) {
  TokenTree tree;
  absl::Status status;
  bool done = false;
  std::unique_lock<std::mutex> lock(mutex_);
  waiting_.push_back({&request, &tree, &status, &done});
  while (!done) {
    if (busy_) {
      changed_.wait(lock);
    } else {
      RunRound(lock);  // perhaps of others that came before
    }
  }
  if (!status.ok()) {
    return status;
  }
  return tree;
}

void DraftQueue::RunRound(std::unique_lock<std::mutex>& lock) {
  const size_t count = std::min<size_t>(waiting_.size(), round_.max_streams());
  running_.assign(waiting_.begin(), waiting_.begin() + count);
  waiting_.erase(waiting_.begin(), waiting_.begin() + count);
  requests_.clear();
  trees_.clear();
  for (const Waiting& one : running_) {
    requests_.push_back(one.request);
    trees_.push_back(one.tree);
  }
  busy_ = true;
  lock.unlock();
  const absl::Status status = round_.Run(requests_, trees_);
  LookAtDevice(status);
  lock.lock();
  busy_ = false;
  for (const Waiting& one : running_) {
    *one.status = status;
    *one.done = true;
  }
  changed_.notify_all();
}

void DraftQueue::LookAtDevice(const absl::Status& status) {
  if (!status.ok() && on_device_failure_ != nullptr && !round_.device().Synchronize().ok()) {
    on_device_failure_(status);
  }
}

absl::Status DraftQueue::InTurn(absl::FunctionRef<absl::Status()> work) {
  std::unique_lock<std::mutex> lock(mutex_);
  changed_.wait(lock, [this] { return !busy_; });
  busy_ = true;
  lock.unlock();
  const absl::Status status = work();
  LookAtDevice(status);
  lock.lock();
  busy_ = false;
  changed_.notify_all();
  return status;
}

}  // namespace arborist::drafter
