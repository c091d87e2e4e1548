#pragma once

#include <mutex>
#include <string>
#include <utility>

#include "common/rpc/server.h"

namespace arborist {

// Health of one named service, set by threads that may be there before the server is: the last value is
// handed over by Attach. Only changes reach the server, so that who watches hears no repeats. Thread-safe.
// The server outlives the threads that set it.
class ServingSwitch {
 public:
  explicit ServingSwitch(std::string service) : service_(std::move(service)) {}

  void Attach(RpcServer* server) {
    std::lock_guard lock(mutex_);
    server_ = server;
    server_->SetServing(service_, serving_);
  }
  void Set(bool serving) {
    Set(serving, [] {});
  }
  // `if_changed` runs before another thread can change it again, for a line in the log; it must not call
  // back.
  template <typename IfChanged>
  void Set(bool serving, const IfChanged& if_changed) {
    std::lock_guard lock(mutex_);
    if (Change(serving && !failed_)) {
      if_changed();
    }
  }
  // NOT_SERVING from now on, whatever Set says later.
  void Fail() {
    std::lock_guard lock(mutex_);
    failed_ = true;
    Change(false);
  }

 private:
  // Under mutex_.
  bool Change(bool serving) {
    if (serving == serving_) {
      return false;
    }
    serving_ = serving;
    if (server_ != nullptr) {
      server_->SetServing(service_, serving_);
    }
    return true;
  }

  const std::string service_;
  std::mutex mutex_;
  bool serving_ = false;
  bool failed_ = false;
  RpcServer* server_ = nullptr;
};

}  // namespace arborist
