#pragma once

#include <mutex>
#include <string>
#include <utility>

#include "common/rpc/server.h"

namespace arborist {

// Health of one named service, set by threads that may be there before the server is: the last value is
// handed over by Attach. Thread-safe. The server outlives the threads that set it.
class ServingSwitch {
 public:
  explicit ServingSwitch(std::string service) : service_(std::move(service)) {}

  void Attach(RpcServer* server) {
    std::lock_guard lock(mutex_);
    server_ = server;
    server_->SetServing(service_, serving_);
  }
  void Set(bool serving) {
    std::lock_guard lock(mutex_);
    serving_ = serving && !failed_;
    if (server_ != nullptr) {
      server_->SetServing(service_, serving_);
    }
  }
  // NOT_SERVING from now on, whatever Set says later.
  void Fail() {
    {
      std::lock_guard lock(mutex_);
      failed_ = true;
    }
    Set(false);
  }

 private:
  const std::string service_;
  std::mutex mutex_;
  bool serving_ = false;
  bool failed_ = false;
  RpcServer* server_ = nullptr;
};

}  // namespace arborist
