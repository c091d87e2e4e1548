#pragma once

#include <mutex>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "common/rpc/serving_switch.h"

namespace arborist {

// How a process ends whose device failed: it says why, health turns to NOT_SERVING, and a SIGTERM to itself
// drains it like any other end; status() is then its reason. Thread-safe.
class DeviceFailure {
 public:
  DeviceFailure(std::string process, ServingSwitch& health) : process_(std::move(process)), health_(health) {}

  // More than one report is as good as one.
  void Report(const absl::Status& status);
  // OK while the device works.
  absl::Status status() const;

 private:
  const std::string process_;
  ServingSwitch& health_;
  mutable std::mutex mutex_;
  absl::Status status_;
};

}  // namespace arborist
