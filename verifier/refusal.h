#pragma once

#include <chrono>
#include <mutex>
#include <string>

#include "absl/status/status.h"
#include "common/rpc/status_bridge.h"

namespace arborist::verifier {

// UNAVAILABLE with a reason and a time to try again: peers look for another verifier.
inline absl::Status NotNow(const char* reason, const std::string& why) {
  return WithRetryDelay(ErrorWithReason(absl::StatusCode::kUnavailable, reason, why),
                        std::chrono::milliseconds(500));
}

// Whether new sequences are refused: from Begin on for good. Thread-safe.
class Refusal {
 public:
  // The first one counts. `reason` as in ErrorInfo.
  void Begin(const char* reason, const std::string& why) {
    const std::lock_guard lock(mutex_);
    if (status_.ok()) {
      status_ = NotNow(reason, why);
    }
  }
  absl::Status status() const {
    const std::lock_guard lock(mutex_);
    return status_;
  }

 private:
  mutable std::mutex mutex_;
  absl::Status status_;
};

}  // namespace arborist::verifier
