#include "verifier/mask_maker.h"

namespace arborist::verifier {

void MaskMaker::Make(SequenceHandle sequence, std::shared_ptr<TreeMasks> masks) {
  const std::lock_guard lock(mutex_);
  if (stopping_) {
    return;
  }
  waiting_.emplace_back(sequence, std::move(masks));
  if (!thread_.joinable()) {
    thread_ = std::thread([this] { Loop(); });
  }
  changed_.notify_one();
}

void MaskMaker::Stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    changed_.notify_one();
  }
  if (thread_.joinable()) {
    thread_.join();
  }
}

void MaskMaker::Loop() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return stopping_ || !waiting_.empty(); });
    if (stopping_) {
      return;
    }
    auto [sequence, masks] = std::move(waiting_.front());
    waiting_.pop_front();
    if (masks.use_count() == 1) {
      continue;  // its sequence has gone
    }
    lock.unlock();
    const bool all = masks->MakeOneMore();
    if (all) {
      done_(sequence, masks);
    }
    lock.lock();
    if (!all) {
      waiting_.emplace_back(sequence, std::move(masks));
    }
  }
}

}  // namespace arborist::verifier
