#include "common/rpc/device_failure.h"

#include <unistd.h>

#include <csignal>
#include <cstdio>

namespace arborist {

void DeviceFailure::Report(const absl::Status& status) {
  {
    const std::lock_guard lock(mutex_);
    if (!status_.ok()) {
      return;
    }
    status_ = status;
  }
  std::fprintf(stderr, "%s: the device failed: %s\n", process_.c_str(),
               std::string(status.message()).c_str());
  health_.Set(false);
  kill(getpid(), SIGTERM);
}

absl::Status DeviceFailure::status() const {
  const std::lock_guard lock(mutex_);
  return status_;
}

}  // namespace arborist
