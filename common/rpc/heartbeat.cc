#include "common/rpc/heartbeat.h"

#include <utility>

namespace arborist {

Heartbeat::Heartbeat(std::chrono::milliseconds interval, std::function<void()> also)
    : interval_(interval), also_(std::move(also)), thread_([this] { Run(); }) {}

Heartbeat::~Heartbeat() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  stopping_changed_.notify_all();
  thread_.join();
}

void Heartbeat::Add(HeartbeatListener* listener) {
  std::lock_guard lock(mutex_);
  listeners_.insert(listener);
}

void Heartbeat::Remove(HeartbeatListener* listener) {
  std::lock_guard lock(mutex_);
  listeners_.erase(listener);
}

void Heartbeat::Run() {
  std::unique_lock lock(mutex_);
  auto next = std::chrono::steady_clock::now() + interval_;
  while (!stopping_changed_.wait_until(lock, next, [this] { return stopping_; })) {
    for (HeartbeatListener* listener : listeners_) {
      listener->OnHeartbeat();
    }
    lock.unlock();
    if (also_) {
      also_();
    }
    lock.lock();
    next = std::chrono::steady_clock::now() + interval_;
  }
}

}  // namespace arborist
