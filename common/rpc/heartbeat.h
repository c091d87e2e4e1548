#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>
#include <unordered_set>

namespace arborist {

// Peers hear from every open stream at least every 100 ms; the rest is margin for a late thread.
inline constexpr std::chrono::milliseconds kHeartbeatInterval{75};

// Something that lives as long as a stream. OnHeartbeat must not block.
class HeartbeatListener {
 public:
  virtual ~HeartbeatListener() = default;
  virtual void OnHeartbeat() = 0;
};

// One thread that calls all listeners every interval, so signs of life do not depend on compute threads.
class Heartbeat {
 public:
  // `also` runs once an interval too; may be empty.
  Heartbeat(std::chrono::milliseconds interval, std::function<void()> also);
  ~Heartbeat();

  void Add(HeartbeatListener* listener);
  // When it returns, the listener is not called any more. Not from OnHeartbeat.
  void Remove(HeartbeatListener* listener);

 private:
  void Run();

  const std::chrono::milliseconds interval_;
  const std::function<void()> also_;
  std::mutex mutex_;
  std::condition_variable stopping_changed_;
  std::unordered_set<HeartbeatListener*> listeners_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace arborist
