#pragma once

#include <chrono>
#include <mutex>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "common/rpc/serving_switch.h"

namespace arborist {

// How a process ends whose device failed: it says why in one line, health turns to NOT_SERVING for good, and
// a SIGTERM to itself drains it like any other end, but not with exit status 0: see status(). Thread-safe.
class DeviceFailure {
 public:
  DeviceFailure(std::string process, ServingSwitch& health) : process_(std::move(process)), health_(health) {}

  // More than one report is as good as one.
  void Report(const absl::Status& status);
  // As long as the server is told to wait for running calls, or `most`; after a failure nothing that runs can
  // succeed, and only what was said goes out.
  void Drain(RpcServer& server) const;
  void Drain(RpcServer& server, std::chrono::milliseconds most) const;
  // Why the process ends that got this signal: "signal 15", or that its device failed, which sent it.
  std::string Cause(int signal) const;
  // What the process ends with: OK, or that its device failed.
  absl::Status status() const;

 private:
  const std::string process_;
  ServingSwitch& health_;
  mutable std::mutex mutex_;
  bool failed_ = false;
};

}  // namespace arborist
