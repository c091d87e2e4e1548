#include "verifier/shadow_worker.h"

#include <utility>

#include "common/base/check.h"

namespace arborist::verifier {

ShadowWorker::ShadowWorker(std::function<void(const ShadowSample&)> work)
    : work_(std::move(work)), thread_([this] { Loop(); }) {}

ShadowWorker::~ShadowWorker() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    changed_.notify_all();
  }
  thread_.join();
}

bool ShadowWorker::busy() {
  const std::lock_guard lock(mutex_);
  return sample_ != nullptr;
}

void ShadowWorker::WaitUntilIdle() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return sample_ == nullptr; });
}

void ShadowWorker::Start(std::unique_ptr<ShadowSample> sample) {
  const std::lock_guard lock(mutex_);
  Check(sample_ == nullptr, "one comparison at a time");
  sample_ = std::move(sample);
  changed_.notify_all();
}

void ShadowWorker::Loop() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return stopping_ || sample_ != nullptr; });
    if (sample_ == nullptr) {
      return;
    }
    lock.unlock();
    work_(*sample_);
    lock.lock();
    sample_.reset();
    changed_.notify_all();
  }
}

}  // namespace arborist::verifier
